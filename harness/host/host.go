// Package host says what this machine has free for the tiers of a cache. It is
// the only part of sizing that looks at a machine: what follows from the
// numbers is computed by package fixtures.
//
//	limits, err := host.ReadLimits(resultsDir) // once, before servers run
//	budgets, err := fixtures.Size(set, slotBytes, limits, evict)
package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kvproof/kvproof/fixtures"
)

// FallbackMemory is what counts as free memory where the kernel does not say,
// as on macOS: 8 GiB, the default of DaseR's benchmark in that case.
const FallbackMemory = 8 * fixtures.GiB

// Memory is what the kernel says about the memory of the machine, in bytes.
type Memory struct {
	Free      int64 // MemFree: used for nothing at all
	Available int64 // MemAvailable: with what can be freed without swapping, such as file caches
}

// ReadLimits returns what is free in memory, by MemFree as in DaseR's
// benchmark, and on the disk of dir, which need not exist yet.
func ReadLimits(dir string) (fixtures.Limits, error) {
	memory, err := ReadMemory()
	if err != nil {
		return fixtures.Limits{}, err
	}
	disk, err := diskFree(dir)
	if err != nil {
		return fixtures.Limits{}, err
	}
	return fixtures.Limits{MemoryFree: memory.Free, DiskFree: disk}, nil
}

// ReadMemory reads the kernel's memory counters. Where there are none, both
// are FallbackMemory.
func ReadMemory() (Memory, error) { return readMemory("/proc/meminfo") }

func readMemory(path string) (m Memory, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Memory{FallbackMemory, FallbackMemory}, nil
	}
	if err != nil {
		return Memory{}, fmt.Errorf("reading what memory is free: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if m, err = parseMemory(file); err != nil {
		return Memory{}, fmt.Errorf("reading what memory is free: %s: %w", path, err)
	}
	return m, nil
}

// parseMemory reads lines such as "MemFree:  123 kB".
func parseMemory(r io.Reader) (Memory, error) {
	found := map[string]int64{}
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] != "MemFree:" && fields[0] != "MemAvailable:" {
			continue
		}
		if len(fields) != 3 || fields[2] != "kB" {
			return Memory{}, fmt.Errorf("line %d: %q: want a number and kB", number, lines.Text())
		}
		n, err := strconv.ParseInt(fields[1], 10, 53)
		if err != nil || n < 0 {
			return Memory{}, fmt.Errorf("line %d: %q: want a number and kB", number, lines.Text())
		}
		found[fields[0]] = n << 10
	}
	if err := lines.Err(); err != nil {
		return Memory{}, err
	}
	free, ok := found["MemFree:"]
	if !ok {
		return Memory{}, errors.New("there is no MemFree")
	}
	available, ok := found["MemAvailable:"]
	if !ok { // kernels before 3.14
		available = free
	}
	return Memory{Free: free, Available: available}, nil
}

// existing is dir, or the closest directory above it that exists.
func existing(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		if _, err = os.Stat(path); err == nil {
			return path, nil
		}
		above := filepath.Dir(path)
		if !errors.Is(err, fs.ErrNotExist) || above == path {
			return "", err
		}
		path = above
	}
}
