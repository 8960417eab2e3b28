package launch

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// waiting is the wait for a service to become ready, however it runs.
type waiting struct {
	name    string
	log     follower
	path    string // of the log
	refusal []string
	check   Check
	exited  <-chan struct{}
	died    func() error // nil while it runs
}

// ready waits until the check succeeds, the service ends or says in its log
// that it will not come up, or ctx ends.
func (w *waiting) ready(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if err := w.died(); err != nil {
			return err
		}
		if line := refusal(w.log.fresh(), w.refusal); line != "" {
			return fmt.Errorf("it will not come up, in its own words:\n\t%s", line)
		}
		err := w.ask(ctx)
		if err == nil {
			return w.died() // another process could have answered on its port
		}
		select {
		case <-w.exited:
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (asked last: %w)%s", context.Cause(ctx), err, quote(tail(w.path)))
		}
	}
}

func (w *waiting) ask(ctx context.Context) error {
	if w.check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return w.check(ctx)
}

// refusal is the first of the lines that holds one of the parts.
func refusal(lines, parts []string) string {
	for _, line := range lines {
		for _, part := range parts {
			if strings.Contains(line, part) {
				return line
			}
		}
	}
	return ""
}
