package ptxrun

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// memory decodes ld, st and atom.add.
func (p *parser) memory(in *instruction, parts, args []string) error {
	if in.width < 8 || len(parts) < 3 {
		return fmt.Errorf("unknown instruction")
	}
	in.access = access{space: parts[1], count: 1}
	qualifiers := parts[2 : len(parts)-1]
	in.op = map[string]opcode{"ld": opLoad, "st": opStore, "atom": opAtomicAdd}[parts[0]]
	if in.op == opAtomicAdd && (in.access.space != "global" || !slices.Equal(qualifiers, []string{"add"}) || in.signed) {
		return fmt.Errorf("unknown instruction")
	}
	for _, q := range qualifiers {
		switch q {
		case "v2":
			in.access.count = 2
		case "add", "cs", "nc", "ca", "cg", "volatile":
		default:
			return fmt.Errorf("unknown qualifier %q", q)
		}
	}
	if in.op == opStore { // st [address], values
		if err := wantArgs(args, 1+in.access.count); err != nil {
			return err
		}
		if err := p.address(&in.access, args[0]); err != nil {
			return err
		}
		return p.lanes(in, args[1:])
	}
	want := in.access.count + 1
	if in.op == opAtomicAdd {
		want = 3
	}
	if err := wantArgs(args, want); err != nil {
		return err
	}
	if err := p.address(&in.access, args[in.access.count]); err != nil {
		return err
	}
	if in.op == opAtomicAdd { // atom result, [address], value
		var err error
		if in.src[0], err = p.source(args[2], in.width); err != nil {
			return err
		}
	}
	return p.lanes(in, args[:in.access.count])
}

// lanes reads the registers of a load or the values of a store. PTX lets a
// narrow type use a wider register: 8 bits in one of 32, say.
func (p *parser) lanes(in *instruction, args []string) error {
	joined := strings.Join(args, ",")
	if braces := strings.HasPrefix(joined, "{") && strings.HasSuffix(joined, "}"); braces != (in.access.count > 1) {
		return fmt.Errorf("braces and the vector's length disagree")
	}
	for i, a := range strings.Split(strings.Trim(joined, "{}"), ",") {
		in.dstWidth = in.width
		if m := registerRE.FindStringSubmatch(a); m != nil {
			in.dstWidth = max(in.width, p.classes[m[1]].width)
		}
		var err error
		if in.op == opStore {
			in.access.lanes[i], err = p.source(a, in.dstWidth)
		} else {
			in.access.lanes[i], err = p.destination(a, in.dstWidth)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// address reads [register+offset], [name+offset] or [number].
func (p *parser) address(a *access, s string) error {
	inner, ok := strings.CutPrefix(s, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if !ok || !closed {
		return fmt.Errorf("no address: %q", s)
	}
	base, offset, hasOffset := strings.Cut(inner, "+")
	if hasOffset {
		n, err := number(offset)
		if err != nil {
			return err
		}
		a.offset = n
	}
	a.base = noBase
	if strings.HasPrefix(base, "%") {
		if a.space == "param" {
			return fmt.Errorf("a parameter's address in a register")
		}
		slot, err := p.register(base, 64)
		a.base = slot
		return err
	}
	at, known := p.shared[base]
	if a.space == "param" {
		at, known = p.params[base]
	}
	if !known || a.space == "global" {
		return fmt.Errorf("no variable %q in .%s", base, a.space)
	}
	a.offset += at
	return nil
}

// do performs a memory instruction of one thread.
func (c *cta) do(t *thread, in *instruction) error {
	size := uint64(in.width / 8)
	addr := in.access.offset
	if in.access.base != noBase {
		addr += t.registers[in.access.base]
	}
	b, err := c.bytes(t, in, addr, size*uint64(in.access.count))
	if err != nil {
		return err
	}
	if in.op == opAtomicAdd {
		old := load(b, size)
		store(b, size, old+t.value(c, in.src[0]))
		t.registers[in.access.lanes[0]] = old
		return nil
	}
	for i := range in.access.count {
		lane := b[uint64(i)*size:]
		if in.op == opStore {
			store(lane, size, t.value(c, in.access.lanes[i]))
			continue
		}
		v := load(lane, size)
		if in.signed {
			v = cut(uint64(extend(v, in.width)), in.dstWidth)
		}
		t.registers[in.access.lanes[i]] = v
	}
	return nil
}

// bytes resolves an address, refusing what a device would fault on.
func (c *cta) bytes(t *thread, in *instruction, addr, n uint64) ([]byte, error) {
	if addr%n != 0 {
		return nil, fmt.Errorf("%q: address %#x is not a multiple of %d", in.text, addr, n)
	}
	switch in.access.space {
	case "param":
		if in.op == opLoad && addr+n <= uint64(len(c.launch.Params)) {
			return c.launch.Params[addr:], nil
		}
	case "shared":
		if n <= uint64(len(c.shared)) && addr <= uint64(len(c.shared))-n {
			return c.shared[addr:], c.races.note(t.number, addr, n, in)
		}
	case "global":
		if b := c.find(addr, n); b != nil {
			return b, nil
		}
	}
	return nil, fmt.Errorf("%q: illegal %s address %#x", in.text, in.access.space, addr)
}

func load(b []byte, size uint64) uint64 {
	if size == 8 {
		return binary.LittleEndian.Uint64(b)
	}
	var v [8]byte
	copy(v[:size], b)
	return binary.LittleEndian.Uint64(v[:])
}

func store(b []byte, size, value uint64) {
	var v [8]byte
	binary.LittleEndian.PutUint64(v[:], value)
	copy(b[:size], v[:])
}
