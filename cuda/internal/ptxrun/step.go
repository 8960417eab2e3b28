package ptxrun

import "fmt"

// value is an operand's value: a register from 0 on, a constant below.
func (t *thread) value(c *cta, operand int32) uint64 {
	if operand >= 0 {
		return t.registers[operand]
	}
	return c.kernel.constants[^operand]
}

// cut keeps the low width bits. Registers always hold cut values.
func cut(v uint64, width uint8) uint64 {
	if width >= 64 {
		return v
	}
	return v & (1<<width - 1)
}

// extend reads the low width bits as a signed number.
func extend(v uint64, width uint8) int64 {
	return int64(v<<(64-width)) >> (64 - width)
}

// step runs a thread to its next barrier or to its end.
func (c *cta) step(t *thread) error {
	for {
		if t.pc >= len(c.kernel.code) {
			return fmt.Errorf("ran past the last instruction")
		}
		in := &c.kernel.code[t.pc]
		t.pc++
		if c.steps++; c.launch.Limit != 0 && c.steps > c.launch.Limit {
			return fmt.Errorf("over the limit of %d instructions", c.launch.Limit)
		}
		if in.guard != noGuard && (t.registers[in.guard] != 0) == in.negate {
			continue
		}
		switch in.op {
		case opReturn:
			t.done = true
			return nil
		case opBarrier:
			return nil
		case opBranch:
			t.pc = in.target
		case opLoad, opStore, opAtomicAdd:
			if err := c.do(t, in); err != nil {
				return err
			}
		default:
			t.registers[in.dst] = cut(c.compute(t, in), in.dstWidth)
		}
	}
}

// compute is the value of an arithmetic instruction, before it is cut to the
// width of its destination.
func (c *cta) compute(t *thread, in *instruction) uint64 {
	x := t.value(c, in.src[0])
	switch in.op {
	case opMove:
		return x
	case opConvert:
		if in.signed {
			return uint64(extend(x, in.width))
		}
		return x
	case opNot:
		return ^x
	}
	y := t.value(c, in.src[1])
	switch in.op {
	case opAdd:
		return x + y
	case opSub:
		return x - y
	case opMulLo:
		return x * y
	case opMadLo:
		return x*y + t.value(c, in.src[2])
	case opMulWide:
		if in.signed {
			return uint64(extend(x, in.width) * extend(y, in.width))
		}
		return x * y
	case opAnd:
		return x & y
	case opOr:
		return x | y
	case opXor:
		return x ^ y
	case opShl:
		return x << min(y, 64) // more than the width gives 0, as in Go
	case opShr:
		if in.signed {
			return uint64(extend(x, in.width) >> min(y, 63))
		}
		return x >> min(y, 64)
	case opMin, opMax:
		if in.less(x, y) == (in.op == opMin) {
			return x
		}
		return y
	case opSelect:
		if t.value(c, in.src[2]) != 0 {
			return x
		}
		return y
	}
	return in.compare(x, y)
}

func (in *instruction) less(x, y uint64) bool {
	if in.signed {
		return extend(x, in.width) < extend(y, in.width)
	}
	return x < y
}

// compare is the value of setp.
func (in *instruction) compare(x, y uint64) uint64 {
	var holds bool
	switch in.comparison {
	case "eq":
		holds = x == y
	case "ne":
		holds = x != y
	case "lt":
		holds = in.less(x, y)
	case "le":
		holds = !in.less(y, x)
	case "gt":
		holds = in.less(y, x)
	case "ge":
		holds = !in.less(x, y)
	}
	if holds {
		return 1
	}
	return 0
}
