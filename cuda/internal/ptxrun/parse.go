package ptxrun

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A parser reads the body of one kernel.
type parser struct {
	kernel  *Kernel
	params  map[string]uint64 // offset of each parameter
	shared  map[string]uint64 // offset of each shared variable
	classes map[string]class  // by register prefix, as %rd
	labels  map[string]int
	jumps   []jump
}

// A class is a family of registers from one .reg declaration.
type class struct {
	width uint8 // bits; 1 for predicates
	first int   // slot of register 0
	count int
}

type jump struct {
	at    int
	label string
}

func newParser(k *Kernel) *parser {
	k.registers = len(specials) // the special registers come first
	return &parser{
		kernel: k, params: map[string]uint64{}, shared: map[string]uint64{},
		classes: map[string]class{}, labels: map[string]int{},
	}
}

// specials are read-only registers of 32 bits, filled per thread, in slot order.
var specials = []string{
	"%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z",
	"%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z",
}

var (
	regRE      = regexp.MustCompile(`^\.reg \.(pred|[bus](?:16|32|64)) (%[a-z]+)<(\d+)>$`)
	sharedRE   = regexp.MustCompile(`^\.shared \.align \d+ \.b8 (\w+)\[(\d+)\]$`)
	registerRE = regexp.MustCompile(`^(%[a-z]+)(\d+)$`)
)

func (p *parser) body(text string) error {
	for statement := range strings.SplitSeq(text, ";") {
		statement = strings.Join(strings.Fields(statement), " ")
		for {
			label, rest, ok := strings.Cut(statement, ":")
			if !ok || strings.ContainsAny(label, " []") {
				break
			}
			p.labels[label] = len(p.kernel.code)
			statement = strings.TrimSpace(rest)
		}
		if statement == "" || strings.HasPrefix(statement, ".pragma") {
			continue
		}
		if err := p.statement(statement); err != nil {
			return fmt.Errorf("%q: %w", statement, err)
		}
	}
	for _, j := range p.jumps {
		at, ok := p.labels[j.label]
		if !ok {
			return fmt.Errorf("jumping to %q: no such label", j.label)
		}
		p.kernel.code[j.at].target = at
	}
	return nil
}

func (p *parser) statement(s string) error {
	if m := regRE.FindStringSubmatch(s); m != nil {
		width := uint8(1)
		if m[1] != "pred" {
			width = uint8(integer(m[1][1:]))
		}
		p.classes[m[2]] = class{width: width, first: p.kernel.registers, count: int(integer(m[3]))}
		p.kernel.registers += int(integer(m[3]))
		return nil
	}
	if m := sharedRE.FindStringSubmatch(s); m != nil {
		p.shared[m[1]] = p.kernel.sharedSize
		p.kernel.sharedSize += (integer(m[2]) + 15) &^ 15
		return nil
	}
	if strings.HasPrefix(s, ".") {
		return fmt.Errorf("unknown declaration")
	}
	in, err := p.instruction(s)
	if err != nil {
		return err
	}
	p.kernel.code = append(p.kernel.code, in)
	return nil
}

// register is the slot of a register that must be width bits wide.
func (p *parser) register(name string, width uint8) (int32, error) {
	for slot, s := range specials {
		if name == s {
			if width != 32 {
				return 0, fmt.Errorf("%s has 32 bits, the instruction wants %d", name, width)
			}
			return int32(slot), nil
		}
	}
	m := registerRE.FindStringSubmatch(name)
	if m == nil {
		return 0, fmt.Errorf("no register: %q", name)
	}
	c, ok := p.classes[m[1]]
	n := int(integer(m[2]))
	if !ok || n >= c.count {
		return 0, fmt.Errorf("register %s is not declared", name)
	}
	if c.width != width {
		return 0, fmt.Errorf("%s has %d bits, the instruction wants %d", name, c.width, width)
	}
	return int32(c.first + n), nil
}

// source is a register, a number or the address of a shared variable. A
// constant becomes the complement of its index.
func (p *parser) source(s string, width uint8) (int32, error) {
	if strings.HasPrefix(s, "%") {
		return p.register(s, width)
	}
	value, isShared := p.shared[s]
	if !isShared {
		n, err := number(s)
		if err != nil {
			return 0, err
		}
		value = cut(n, width)
	}
	p.kernel.constants = append(p.kernel.constants, value)
	return int32(^(len(p.kernel.constants) - 1)), nil
}

func number(s string) (uint64, error) {
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return uint64(n), nil
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(s, "U"), 0, 64)
	if err != nil {
		return 0, fmt.Errorf("no operand: %q", s)
	}
	return n, nil
}
