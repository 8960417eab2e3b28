package wire

import "slices"

func (u *unpickler) push(v any) { u.stack = append(u.stack, v) }

// remember keeps the top of the stack at that place, the next free one.
func (u *unpickler) remember(at int) error {
	if len(u.stack) == 0 || at != len(u.memo) {
		return errPickle
	}
	u.memo = append(u.memo, u.stack[len(u.stack)-1])
	return nil
}

func (u *unpickler) pop(n int) ([]any, error) {
	if len(u.stack) < n {
		return nil, errPickle
	}
	items := slices.Clone(u.stack[len(u.stack)-n:])
	u.stack = u.stack[:len(u.stack)-n]
	return items, nil
}

func (u *unpickler) popMark() ([]any, error) {
	for i := range slices.Backward(u.stack) {
		if u.stack[i] == any(mark{}) {
			items := slices.Clone(u.stack[i+1:])
			u.stack = u.stack[:i]
			return items, nil
		}
	}
	return nil, errPickle
}

func (u *unpickler) bytes(n int) ([]byte, error) {
	if n < 0 || n > len(u.in) {
		return nil, errPickle
	}
	b := u.in[:n]
	u.in = u.in[n:]
	return b, nil
}
