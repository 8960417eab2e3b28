package launch

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// marked returns the living processes that carry a record's mark: those of its
// group, and those that left it. A process that has ended and waits to be
// collected counts as gone.
func marked(r Record) (pids []int) {
	directories, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, dir := range directories {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() || !processAlive(pid) {
			continue
		}
		environment, err := os.ReadFile(filepath.Join(dir, "environ")) // refused for other users' processes
		if err == nil && hasVariable(environment, markVariable+"="+r.Mark) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func hasVariable(environment []byte, entry string) bool {
	for field := range bytes.SplitSeq(environment, []byte{0}) {
		if string(field) == entry {
			return true
		}
	}
	return false
}

// processAlive says whether there is a process that can still do something.
func processAlive(pid int) bool {
	_, alive := stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return alive
}

// groupAlive says whether a process group has a member that can still do
// something. Signal 0 would also reach those that wait to be collected, which
// in a container without an init may be for ever.
func groupAlive(group int) bool {
	directories, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return false
	}
	for _, dir := range directories {
		if g, alive := stat(dir); alive && g == group {
			return true
		}
	}
	return false
}

// stat reads /proc/PID/stat: the process group, and whether the process is one
// that can still do something. A first thread that has ended (Z) says nothing
// while others go on: those still hold the process's sockets. The name before
// the fields is in parentheses and may hold anything.
func stat(dir string) (group int, alive bool) {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const state, groupID, threads = 0, 2, 17 // counted from the third field
	if len(fields) <= threads {
		return 0, false
	}
	group, err = strconv.Atoi(fields[groupID])
	ended := fields[state] == "X" || fields[state] == "Z" && (fields[threads] == "0" || fields[threads] == "1")
	return group, err == nil && !ended
}
