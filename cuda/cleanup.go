package cuda

import "errors"

// A cleanup is what has to be undone, in reverse order.
type cleanup []func() error

func (c *cleanup) add(f func() error) { *c = append(*c, f) }

// run undoes everything and joins what fails into *err.
func (c *cleanup) run(err *error) {
	for i := len(*c) - 1; i >= 0; i-- {
		*err = errors.Join(*err, (*c)[i]())
	}
	*c = nil
}
