package ptxrun

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type opcode uint8

const (
	opReturn opcode = iota
	opBarrier
	opBranch
	opMove // mov, cvta
	opConvert
	opAdd
	opSub
	opMulLo
	opMulWide
	opMadLo
	opMin
	opMax
	opAnd
	opOr
	opXor
	opNot
	opShl
	opShr
	opSelect
	opCompare
	opLoad
	opStore
	opAtomicAdd
)

// An instruction is decoded far enough that executing it looks nothing up.
type instruction struct {
	op         opcode
	comparison string
	guard      int32 // predicate's slot, or noGuard
	negate     bool
	width      uint8 // bits of the type
	signed     bool
	dst        int32
	dstWidth   uint8
	src        [3]int32
	access     access
	target     int
	text       string
}

const noGuard = -1

// An access is the memory operand of ld, st and atom.
type access struct {
	space  string // param, shared, global
	base   int32  // slot of the address register, or noBase
	offset uint64
	lanes  [2]int32 // registers loaded or values stored
	count  int      // lanes in use
}

const noBase = -1

// instruction decodes one statement.
func (p *parser) instruction(s string) (instruction, error) {
	in := instruction{guard: noGuard, text: s}
	if guard, rest, ok := strings.Cut(s, " "); ok && strings.HasPrefix(guard, "@") {
		guard = guard[1:]
		in.negate = strings.HasPrefix(guard, "!")
		slot, err := p.register(strings.TrimPrefix(guard, "!"), 1)
		if err != nil {
			return in, err
		}
		in.guard, s = slot, rest
	}
	mnemonic, rest, _ := strings.Cut(s, " ")
	parts := strings.Split(mnemonic, ".")
	in.width, in.signed = typeOf(parts[len(parts)-1])
	var args []string
	if rest != "" {
		for a := range strings.SplitSeq(rest, ",") {
			args = append(args, strings.TrimSpace(a))
		}
	}
	switch parts[0] {
	case "ret", "exit":
		in.op = opReturn
		return in, wantArgs(args, 0)
	case "bar":
		in.op = opBarrier
		return in, wantArgs(args, 1)
	case "bra":
		in.op = opBranch
		if err := wantArgs(args, 1); err != nil {
			return in, err
		}
		p.jumps = append(p.jumps, jump{at: len(p.kernel.code), label: args[0]})
		return in, nil
	case "ld", "st", "atom":
		return in, p.memory(&in, parts, args)
	}
	return in, p.arithmetic(&in, parts, args)
}

func wantArgs(args []string, n int) error {
	if len(args) != n {
		return fmt.Errorf("%d operands, want %d", len(args), n)
	}
	return nil
}

// typeOf reads a type such as u64, s32, b8 or pred; no type has width 0.
func typeOf(s string) (width uint8, signed bool) {
	if s == "pred" {
		return 1, false
	}
	if len(s) < 2 || !strings.Contains("bus", s[:1]) {
		return 0, false
	}
	n, err := strconv.ParseUint(s[1:], 10, 8)
	if err != nil || !slices.Contains([]uint64{8, 16, 32, 64}, n) {
		return 0, false
	}
	return uint8(n), s[0] == 's'
}

// A form is what an arithmetic instruction does and how wide its operands are
// in multiples of the type: 0 for a predicate, -1 for 32 bits whatever the type.
type form struct {
	op  opcode
	dst int
	src []int
}

var forms = map[string]form{
	"mov": {opMove, 1, []int{1}}, "cvta.to.global": {opMove, 1, []int{1}}, "cvt": {opConvert, 1, []int{1}},
	"add": {opAdd, 1, []int{1, 1}}, "sub": {opSub, 1, []int{1, 1}},
	"mul.lo": {opMulLo, 1, []int{1, 1}}, "mul.wide": {opMulWide, 2, []int{1, 1}}, "mad.lo": {opMadLo, 1, []int{1, 1, 1}},
	"min": {opMin, 1, []int{1, 1}}, "max": {opMax, 1, []int{1, 1}},
	"and": {opAnd, 1, []int{1, 1}}, "or": {opOr, 1, []int{1, 1}}, "xor": {opXor, 1, []int{1, 1}}, "not": {opNot, 1, []int{1}},
	"shl": {opShl, 1, []int{1, -1}}, "shr": {opShr, 1, []int{1, -1}},
	"selp": {opSelect, 1, []int{1, 1, 0}}, "setp": {opCompare, 0, []int{1, 1}},
}

var comparisons = []string{"eq", "ne", "lt", "le", "gt", "ge"}

func (p *parser) arithmetic(in *instruction, parts, args []string) error {
	name := strings.Join(parts[:len(parts)-1], ".")
	sourceWidth := in.width
	switch parts[0] {
	case "setp":
		if len(parts) != 3 || !slices.Contains(comparisons, parts[1]) {
			return fmt.Errorf("unknown instruction")
		}
		name, in.comparison = "setp", parts[1]
	case "cvt": // cvt.TO.FROM
		if len(parts) != 3 {
			return fmt.Errorf("unknown instruction")
		}
		name = "cvt"
		in.dstWidth, _ = typeOf(parts[1])
	}
	f, ok := forms[name]
	if !ok || in.width == 0 {
		return fmt.Errorf("unknown instruction")
	}
	if err := wantArgs(args, 1+len(f.src)); err != nil {
		return err
	}
	in.op = f.op
	widthOf := func(multiple int) uint8 {
		switch multiple {
		case 0:
			return 1
		case -1:
			return 32
		}
		return sourceWidth * uint8(multiple)
	}
	if f.op != opConvert {
		in.dstWidth = widthOf(f.dst)
	}
	var err error
	if in.dst, err = p.destination(args[0], in.dstWidth); err != nil {
		return err
	}
	for i, multiple := range f.src {
		if in.src[i], err = p.source(args[1+i], widthOf(multiple)); err != nil {
			return err
		}
	}
	return nil
}

// destination is a register that may be written.
func (p *parser) destination(name string, width uint8) (int32, error) {
	slot, err := p.register(name, width)
	if err == nil && int(slot) < len(specials) {
		return 0, fmt.Errorf("%s cannot be written", name)
	}
	return slot, err
}
