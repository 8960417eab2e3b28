package probe

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

// A metricsCase is one of testdata/metrics-*: two pages and what they mean.
type metricsCase struct {
	name          string
	before, after string
	expect        expectation
}

type expectation struct {
	Queries  *float64 `json:"delta_queries"`
	Hits     *float64 `json:"delta_hits"`
	HitRate  *float64 `json:"hit_rate"`
	Reason   Reason   `json:"reason"`
	Invalid  []Reason `json:"invalid"`
	Local    *float64 `json:"share_local"`
	External *float64 `json:"share_external"`
	Computed *float64 `json:"share_recomputed"`
	Total    *float64 `json:"hit_rate_total"`
	OfAsked  *float64 `json:"external_rate_of_asked"`

	keys map[string]json.RawMessage // which of them the case states, null included
}

func metricsCases(t *testing.T) []metricsCase {
	t.Helper()
	paths, err := filepath.Glob("testdata/metrics-*.expect.json")
	require.NoError(t, err)
	require.Len(t, paths, 7)
	var cases []metricsCase
	for _, path := range paths {
		stem := strings.TrimSuffix(path, ".expect.json")
		var file struct{ Expect json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(read(t, path)), &file))
		c := metricsCase{
			name:   filepath.Base(stem),
			before: read(t, stem+".before.txt"),
			after:  read(t, stem+".after.txt"),
		}
		require.NoError(t, json.Unmarshal(file.Expect, &c.expect))
		require.NoError(t, json.Unmarshal(file.Expect, &c.expect.keys))
		cases = append(cases, c)
	}
	return cases
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func parse(t *testing.T, page string) row.Snapshot {
	t.Helper()
	s, err := Parse("engine", strings.NewReader(page))
	require.NoError(t, err)
	return s
}

func TestCases(t *testing.T) {
	changed := make(map[string]bool)
	for _, c := range metricsCases(t) {
		t.Run(c.name, func(t *testing.T) { c.check(t, parse(t, c.before), parse(t, c.after)) })
		for _, v := range variants() {
			t.Run(c.name+"/"+v.name, func(t *testing.T) {
				before, after := v.apply(c.before), v.apply(c.after)
				changed[v.name] = changed[v.name] || after != c.after
				c.check(t, parse(t, before), parse(t, after))
			})
		}
	}
	for _, v := range variants() {
		require.True(t, changed[v.name], "variant %s changes nothing anywhere", v.name)
	}
}

func (c metricsCase) check(t *testing.T, before, after row.Snapshot) {
	t.Helper()
	counting := VLLMLocal()
	if strings.Contains(c.name, "llamacpp") {
		counting = LlamaCpp()
	}
	count := counting(before, after)
	if c.expect.Queries != nil {
		require.Equal(t, row.Count{Hits: *c.expect.Hits, Queries: *c.expect.Queries, HasQueries: true, State: row.Known}, count)
	}
	if _, stated := c.expect.keys["hit_rate"]; stated {
		rate, reason, ok := HitRate(count)
		require.Equal(t, c.expect.HitRate != nil, ok)
		if ok {
			require.InDelta(t, *c.expect.HitRate, rate, 1e-12)
		} else {
			require.Contains(t, append(c.expect.Invalid, c.expect.Reason), reason)
		}
	}
	shares := Shares(before, after)
	for key, want := range map[string][2]*float64{
		"share_local":            {c.expect.Local, shares.Local},
		"share_external":         {c.expect.External, shares.External},
		"share_recomputed":       {c.expect.Computed, shares.Recomputed},
		"hit_rate_total":         {c.expect.Total, shares.HitRate},
		"external_rate_of_asked": {c.expect.OfAsked, shares.ExternalOfAsked},
	} {
		if _, stated := c.expect.keys[key]; !stated {
			continue
		}
		if want[0] == nil {
			require.Nil(t, want[1], key)
			continue
		}
		require.NotNil(t, want[1], key)
		require.InDelta(t, *want[0], *want[1], 1e-12, key)
	}
}
