package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// unpickle reads a pickled tensor.
func (t *Tensor) unpickle(body []byte) error {
	u := unpickler{in: body}
	state, err := u.run()
	if err != nil {
		return fmt.Errorf("reading a pickled tensor: %w", err)
	}
	t.Kind = CPUShared
	for name, value := range state {
		ok := true
		switch name {
		case "shm_name":
			t.Name, ok = value.(string)
		case "nbytes":
			t.Bytes, ok = value.(int)
		case "handle":
			ok = value == nil
		case "dtype":
			var g global
			g, ok = value.(global)
			t.DType = g.name
			ok = ok && g.module == "torch"
		case "shape":
			t.Shape, ok = integers(value)
		case "stride":
			t.Stride, ok = integers(value)
		case "storage_offset":
			t.Start, ok = value.(int)
		case "device_uuid":
			t.Device, ok = value.(string)
		default:
			return fmt.Errorf("reading a pickled tensor: it has a field %q", name)
		}
		if !ok {
			return fmt.Errorf("reading a pickled tensor: %s is %v", name, value)
		}
	}
	for _, name := range []string{"shm_name", "nbytes", "dtype", "shape", "stride"} {
		if _, there := state[name]; !there {
			return fmt.Errorf("reading a pickled tensor: it has no %s", name)
		}
	}
	return nil
}

func integers(v any) ([]int, bool) {
	tuple, ok := v.([]any)
	out := make([]int, 0, len(tuple))
	for _, item := range tuple {
		n, isInt := item.(int)
		ok = ok && isInt
		out = append(out, n)
	}
	return out, ok
}

type (
	global struct{ module, name string }
	mark   struct{}
	object struct{} // an instance of the wrapper, before it has its state
)

// An unpickler is the part of the pickle machine that such a tensor needs.
type unpickler struct {
	in    []byte
	stack []any
	memo  []any
}

var errPickle = errors.New("malformed pickle")

// run returns the state of the only object that is accepted.
func (u *unpickler) run() (map[string]any, error) {
	var state map[string]any
	for {
		op, err := u.bytes(1)
		if err != nil {
			return nil, err
		}
		if op[0] == opStop {
			if len(u.stack) != 1 || u.stack[0] != (object{}) || state == nil || len(u.in) > 0 {
				return nil, errPickle
			}
			return state, nil
		}
		if op[0] == opBuild {
			if len(u.stack) != 2 || u.stack[0] != (object{}) {
				return nil, errPickle
			}
			var ok bool
			if state, ok = u.stack[1].(map[string]any); !ok {
				return nil, errPickle
			}
			u.stack = u.stack[:1]
			continue
		}
		if err := u.step(op[0]); err != nil {
			return nil, err
		}
	}
}

func (u *unpickler) step(op byte) error {
	switch op {
	case opProto, opBinPut:
		b, err := u.bytes(1)
		if err == nil && op == opBinPut {
			return u.remember(int(b[0]))
		}
		return err
	case opFrame:
		_, err := u.bytes(8)
		return err
	case opMemoize:
		return u.remember(len(u.memo))
	case opBinGet:
		b, err := u.bytes(1)
		if err != nil || int(b[0]) >= len(u.memo) {
			return errPickle
		}
		u.push(u.memo[b[0]])
	case opShortBinUnicode, opBinUnicode, opBinInt1, opBinInt2, opBinInt, opLong1:
		return u.literal(op)
	case opNone:
		u.push(nil)
	case opMark:
		u.push(mark{})
	case opEmptyTuple:
		u.push([]any{})
	case opEmptyDict:
		u.push(map[string]any{})
	case opGlobal:
		return u.textGlobal()
	case opStackGlobal:
		names, err := u.pop(2)
		if err != nil {
			return err
		}
		module, ok := names[0].(string)
		name, ok2 := names[1].(string)
		if !ok || !ok2 {
			return errPickle
		}
		return u.global(module, name)
	case opNewObj:
		args, err := u.pop(2)
		if err != nil {
			return err
		}
		if empty, ok := args[1].([]any); args[0] != (global{wrapperModule, wrapperClass}) || !ok || len(empty) > 0 {
			return errPickle
		}
		u.push(object{})
	case opTuple1, opTuple2, opTuple3:
		items, err := u.pop(int(op-opTuple1) + 1)
		if err != nil {
			return err
		}
		u.push(items)
	case opTuple:
		items, err := u.popMark()
		if err != nil {
			return err
		}
		u.push(items)
	case opSetItems:
		return u.setItems()
	default:
		return fmt.Errorf("%w: opcode %#x is refused", errPickle, op)
	}
	return nil
}

func (u *unpickler) setItems() error {
	items, err := u.popMark()
	if err != nil || len(u.stack) == 0 || len(items)%2 != 0 {
		return errPickle
	}
	dict, ok := u.stack[len(u.stack)-1].(map[string]any)
	for pair := range slices.Chunk(items, 2) {
		name, isText := pair[0].(string)
		if !ok || !isText {
			return errPickle
		}
		dict[name] = pair[1]
	}
	return nil
}

// literal pushes a text or an integer.
func (u *unpickler) literal(op byte) error {
	width := map[byte]int{opShortBinUnicode: 1, opBinUnicode: 4, opBinInt1: 1, opBinInt2: 2, opBinInt: 4, opLong1: 1}[op]
	head, err := u.bytes(width)
	if err != nil {
		return err
	}
	var wide [8]byte
	copy(wide[:], head)
	n := binary.LittleEndian.Uint64(wide[:])
	switch op {
	case opShortBinUnicode, opBinUnicode:
		text, err := u.bytes(int(n))
		if err != nil {
			return err
		}
		u.push(string(text))
	case opBinInt:
		u.push(int(int32(n)))
	case opLong1:
		digits, err := u.bytes(int(n))
		if err != nil || n > 8 {
			return errPickle
		}
		fill := byte(0)
		if n > 0 && digits[n-1] >= 0x80 {
			fill = 0xff
		}
		for i := range wide {
			wide[i] = fill
		}
		copy(wide[:], digits)
		u.push(int(binary.LittleEndian.Uint64(wide[:])))
	default:
		u.push(int(n))
	}
	return nil
}

// textGlobal reads the names of protocol 2: two lines.
func (u *unpickler) textGlobal() error {
	module, rest, ok := strings.Cut(string(u.in), "\n")
	name, _, ok2 := strings.Cut(rest, "\n")
	if !ok || !ok2 {
		return errPickle
	}
	u.in = u.in[len(module)+len(name)+2:]
	return u.global(module, name)
}

// global accepts the wrapper's class and PyTorch's types of elements.
func (u *unpickler) global(module, name string) error {
	if (global{module, name}) != (global{wrapperModule, wrapperClass}) && !(module == "torch" && isDType(name)) {
		return fmt.Errorf("%w: the global %s.%s is refused", errPickle, module, name)
	}
	u.push(global{module, name})
	return nil
}

func isDType(name string) bool {
	return slices.Contains([]string{"float16", "bfloat16", "float32", "uint8"}, name)
}
