package harness

import (
	"fmt"
	"os"
)

// progress is one line on the terminal that is overwritten in place. It goes
// to the terminal itself: stdout and stderr belong to the benchmark lines.
type progress struct{ tty *os.File }

func openProgress() *progress {
	tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil {
		return &progress{} // no terminal, nobody watches
	}
	return &progress{tty: tty}
}

func (p *progress) show(line string) {
	if p.tty != nil {
		fmt.Fprintf(p.tty, "\r\x1b[K%s", line)
	}
}

// clear leaves an empty line for what is printed next.
func (p *progress) clear() {
	if p.tty != nil {
		fmt.Fprint(p.tty, "\r\x1b[K")
	}
}
