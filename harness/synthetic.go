package harness

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvproof/kvproof/fixtures"
)

// Defaults of the flags that belong to one workload.
const (
	defaultPrefixRatio = "0.5"
	defaultTurns       = 3
)

// checkSynthetic checks the flags that belong to one synthetic workload, refuses
// those that would be passed over in silence, and puts the members of a sweep
// into the selection.
func (s *Settings) checkSynthetic(sel *selection, wrong complaint) {
	for _, f := range []struct {
		name     string
		value    any
		given    bool
		workload string
	}{
		{"prefixlen", s.PrefixLen, s.PrefixLen != 0, "random"},
		{"rangeratio", s.RangeRatio, s.RangeRatio != 0, "random"},
		{"prefixratio", s.PrefixRatio, s.PrefixRatio != defaultPrefixRatio, "shared-prefix"},
		{"turns", s.Turns, s.Turns != defaultTurns, "multi-turn"},
	} {
		upstream := f.workload == "random" && s.Loader != internalLoader // whose prompts vary likewise
		if f.given && !upstream && !slices.ContainsFunc(sel.workloads, func(w fixtures.Workload) bool { return w.Name == f.workload }) {
			wrong(f.name, f.value, "it is for workload %s, which -workload=%s does not have", f.workload, s.Workload)
		}
	}
	if s.Turns < 1 {
		wrong("turns", s.Turns, "a conversation has at least one turn")
	}
	if s.PrefixRatio == defaultPrefixRatio {
		return
	}
	sweep, err := parseShares(s.PrefixRatio)
	if err != nil {
		wrong("prefixratio", s.PrefixRatio, "%w", err)
	}
	if i := slices.IndexFunc(sel.workloads, func(w fixtures.Workload) bool { return w.Name == "shared-prefix" }); i >= 0 {
		sel.workloads = slices.Replace(slices.Clone(sel.workloads), i, i+1, sweep...)
	}
}

// parseShares reads a comma list of shares, each once, as the workloads that
// have them.
func parseShares(list string) (sweep []fixtures.Workload, err error) {
	for text := range strings.SplitSeq(list, ",") {
		share, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || !(share >= 0 && share <= 1) {
			return nil, fmt.Errorf("%q is no share: want numbers from 0 to 1, e.g. 0.25,0.5,0.75", text)
		}
		w := fixtures.SharedPrefix(share)
		if slices.ContainsFunc(sweep, func(o fixtures.Workload) bool { return o.Name == w.Name }) {
			return nil, fmt.Errorf("%s is there twice (shares are told apart by two decimals)", text)
		}
		sweep = append(sweep, w)
	}
	return sweep, nil
}

// randomLine is the value of the config line "random:".
func (s *Settings) randomLine() string {
	return fmt.Sprintf("prefixlen=%d,rangeratio=%v", s.PrefixLen, s.RangeRatio)
}
