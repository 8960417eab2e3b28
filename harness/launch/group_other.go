//go:build unix && !linux

package launch

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// marked returns the leader of a record's group where it lives and carries the
// mark. Without /proc, ps is what shows the environment of a process.
func marked(r Record) []int {
	out, err := exec.Command("ps", "-E", "-ww", "-o", "command=", "-p", strconv.Itoa(r.PID)).Output()
	if err != nil || !strings.Contains(string(out), markVariable+"="+r.Mark) {
		return nil
	}
	return []int{-r.PID}
}

// groupAlive says whether a process group has a member.
func groupAlive(group int) bool { return syscall.Kill(-group, 0) == nil }

// processAlive says whether there is a process, or for a negative number a
// group.
func processAlive(pid int) bool { return syscall.Kill(pid, 0) == nil }
