package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"

	cycles "github.com/kvproof/kvproof/harness/run"
)

// clientUnit is client-p99-ns as benchfmt reads it.
const clientUnit = "client-p99-sec"

// samples are those of one file.
type samples map[string]map[string][]float64 // by name and unit, in seconds

// runCompare says which differences between two runs may be the client's: those
// of which its own measured error is over a tenth. It follows benchstat, which
// says which differences there are.
func runCompare(_ context.Context, args []string, out, errs io.Writer) int {
	if len(args) != 2 || strings.HasPrefix(args[0], "-") {
		say(errs, "usage: kvproof compare OLD NEW\nnames the differences in time to first token that the client's own error may have made\n")
		return exitUsage
	}
	var read [2]samples
	for i, path := range args {
		var err error
		if read[i], err = readSamples(path); err != nil {
			say(errs, "kvproof compare: %v\n", err)
			return exitFailed
		}
	}
	for _, line := range clientBound(read[0], read[1]) {
		say(out, "%s\n", line)
	}
	return exitOK
}

// readSamples reads what a run printed.
func readSamples(path string) (samples, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	read := make(samples)
	reader := benchfmt.NewReader(f, path)
	for reader.Scan() {
		result, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		name := string(result.Name)
		if read[name] == nil {
			read[name] = make(map[string][]float64)
		}
		for _, v := range result.Values {
			read[name][v.Unit] = append(read[name][v.Unit], v.Value)
		}
	}
	if err := reader.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return read, nil
}

// clientBound lists the differences, in the order of their names.
func clientBound(before, after samples) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		old, now := before[name], after[name]
		client := max(slices.Max(append(old[clientUnit], 0)), slices.Max(append(now[clientUnit], 0)))
		for _, unit := range slices.Sorted(maps.Keys(old)) {
			if !strings.HasSuffix(unit, "ttft-sec") || len(now[unit]) == 0 {
				continue
			}
			from, to := median(old[unit]), median(now[unit])
			if from != to && cycles.ClientBound(duration(client), duration(to-from)) {
				lines = append(lines, fmt.Sprintf("client-bound: %s %s: %v to %v; the client's own error at this load is %v, over a tenth of that difference",
					name, strings.TrimSuffix(unit, "-sec"), duration(from), duration(to), duration(client)))
			}
		}
	}
	return lines
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
