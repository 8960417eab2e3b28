package metric

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

func TestPercentile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i // 100 … 1
	}
	for _, c := range []struct {
		values []int
		p      float64
		want   int
	}{
		{[]int{7}, 0.5, 7},
		{[]int{7}, 0.01, 7},
		{[]int{3, 1}, 0.5, 1},
		{[]int{3, 1, 2}, 0.5, 2},
		{[]int{4, 3, 2, 1}, 0.5, 2},
		{[]int{4, 3, 2, 1}, 1, 4},
		{[]int{4, 3, 2, 1}, 0.75, 3},
		{[]int{4, 3, 2, 1}, 0.76, 4},
		{hundred, 0.99, 99},
		{hundred, 0.07, 7}, // 0.07*100 > 7 in floating point
		{hundred, 0.5, 50},
		{hundred[1:], 0.99, 99}, // 99 values: the rank of 98.01 is 99
	} {
		require.Equal(t, c.want, Percentile(c.values, c.p), "Percentile(%d values, %v)", len(c.values), c.p)
	}
	require.Equal(t, 100, hundred[0], "the argument is left alone")
	require.Panics(t, func() { Percentile([]int{}, 0.5) })
	for _, p := range []float64{0, -1, 1.1, math.NaN()} {
		require.Panics(t, func() { Percentile([]int{1}, p) }, "p = %v", p)
	}
}

func TestMean(t *testing.T) {
	require.Equal(t, 2.5, Mean([]time.Duration{1, 2, 3, 4}))
	require.Panics(t, func() { Mean([]float64{}) })
}

func TestNew(t *testing.T) {
	for _, c := range []struct {
		unit  string
		value float64
		err   string
	}{
		{"hit-%", 0, ""},
		{"hit-%", 100, ""},
		{"hit-%", 130, "more than all"},
		{"cold-req/s", 1e12, ""},
		{"cold-req/s", math.NaN(), "not finite"},
		{"cold-req/s", math.Inf(1), "not finite"},
		{"cold-req/s", math.Inf(-1), "not finite"},
		{"cold-req/s", -1, "negative"},
		{"", 1, "one word"},
		{"hit %", 1, "one word"},
		{"hit\u00a0%", 1, "one word"},
	} {
		m, err := New(c.unit, c.value)
		if c.err == "" {
			require.NoError(t, err)
			require.Equal(t, Metric{c.unit, c.value}, m)
			continue
		}
		require.ErrorContains(t, err, c.err, "New(%q, %v)", c.unit, c.value)
		require.Zero(t, m)
	}
}

var epoch = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

// answer is a request that ended well: sent at 0, then one chunk at each of
// the times in milliseconds, each in a read of its own.
func answer(prompt int, at ...int) row.Timeline {
	t := row.Timeline{Status: row.OK, Sent: epoch, Usage: &row.Usage{PromptTokens: prompt, CompletionTokens: len(at)}}
	for i, ms := range at {
		t.Chunks = append(t.Chunks, row.Chunk{At: epoch.Add(time.Duration(ms) * time.Millisecond), Tokens: 1, Read: i})
	}
	if len(at) > 0 {
		t.FirstToken, t.LastToken = t.Chunks[0].At, t.Chunks[len(at)-1].At
	}
	return t
}

func TestPhase(t *testing.T) {
	failed := answer(1000, 1)
	failed.Status = row.StreamError
	got, err := Phase(Cold, Pass{
		Timelines: []row.Timeline{answer(100, 10, 20, 30), failed, answer(200, 20, 40, 60), answer(300, 60, 64, 68)},
		Elapsed:   2 * time.Second,
	})
	require.NoError(t, err)
	require.Equal(t, []Metric{
		{"cold-mean-ttft-ns", 30e6},
		{"cold-p50-ttft-ns", 20e6},
		{"cold-p50-itl-ns", 10e6},
		{"cold-p50-e2e-ns", 60e6},
		{"cold-req/s", 1.5},
		{"cold-in-tok/s", 300},
	}, got)
}

func TestPhaseLeavesOut(t *testing.T) {
	unknown := answer(100, 10, 20)
	unknown.Usage = nil
	silent := answer(100)
	for _, c := range []struct {
		name      string
		timelines []row.Timeline
		want      []string
	}{
		{"nothing at all", nil, nil},
		{"no request that ended well", []row.Timeline{{Status: row.CutOff, Sent: epoch, FirstToken: epoch.Add(1)}}, nil},
		{"prompt length unknown", []row.Timeline{unknown}, []string{"warm-mean-ttft-ns", "warm-p50-ttft-ns", "warm-p50-itl-ns", "warm-p50-e2e-ns", "warm-req/s"}},
		{"no token", []row.Timeline{silent}, []string{"warm-req/s", "warm-in-tok/s"}},
		{"one token", []row.Timeline{answer(100, 10)}, []string{"warm-mean-ttft-ns", "warm-p50-ttft-ns", "warm-p50-e2e-ns", "warm-req/s", "warm-in-tok/s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Phase(Warm, Pass{Timelines: c.timelines, Elapsed: time.Second})
			require.NoError(t, err)
			var units []string
			for _, m := range got {
				units = append(units, m.Unit)
			}
			require.Equal(t, c.want, units)
		})
	}
	_, err := Phase(Warm, Pass{Timelines: []row.Timeline{answer(100, 10)}})
	require.ErrorContains(t, err, "warm-req/s: +Inf is not finite")
	backwards := answer(100, 10)
	backwards.Sent = epoch.Add(time.Minute)
	_, err = Phase(Warm, Pass{Timelines: []row.Timeline{backwards}, Elapsed: time.Second})
	require.ErrorContains(t, err, "negative")
}

func TestP99FromAHundred(t *testing.T) {
	var timelines []row.Timeline
	for i := range 100 {
		timelines = append(timelines, answer(10, i+1))
	}
	value := func(timelines []row.Timeline) (float64, bool) {
		got, err := Phase(Warm, Pass{Timelines: timelines, Elapsed: time.Second})
		require.NoError(t, err)
		for _, m := range got {
			if m.Unit == "warm-p99-ttft-ns" {
				return m.Value, true
			}
		}
		return 0, false
	}
	_, ok := value(timelines[:99])
	require.False(t, ok)
	p99, ok := value(timelines)
	require.True(t, ok)
	require.Equal(t, 99e6, p99)
}

func TestInterTokenLatencies(t *testing.T) {
	chunks := func(spec ...[3]int) row.Timeline { // at ms, tokens, read
		t := row.Timeline{Status: row.OK}
		for _, c := range spec {
			t.Chunks = append(t.Chunks, row.Chunk{At: epoch.Add(time.Duration(c[0]) * time.Millisecond), Tokens: c[1], Read: c[2]})
		}
		return t
	}
	long := chunks()
	for i := range 30 {
		long.Chunks = append(long.Chunks, row.Chunk{At: epoch.Add(time.Duration(i) * 10 * time.Millisecond), Tokens: 1, Read: i})
	}
	twoGlued := chunks()
	twoGlued.Chunks = append(twoGlued.Chunks, long.Chunks...)
	twoGlued.Chunks[19].Read, twoGlued.Chunks[19].At = twoGlued.Chunks[20].Read, twoGlued.Chunks[20].At

	withUsage := func(t row.Timeline, tokens int) row.Timeline {
		t.Usage = &row.Usage{CompletionTokens: tokens}
		return t
	}
	for _, c := range []struct {
		name      string
		timelines []row.Timeline
		want      float64 // median in ms
		count     int
		valid     bool
	}{
		{"one token a chunk", []row.Timeline{chunks([3]int{0, 1, 0}, [3]int{10, 1, 1}, [3]int{20, 1, 2})}, 10, 2, true},
		{"several tokens a chunk", []row.Timeline{chunks([3]int{0, 4, 0}, [3]int{80, 4, 1}, [3]int{160, 4, 2})}, 20, 8, true},
		{"all in one read", []row.Timeline{chunks([3]int{0, 1, 0}, [3]int{0, 1, 0}, [3]int{0, 1, 0})}, 0, 0, false},
		{"half in shared reads", []row.Timeline{chunks([3]int{0, 1, 0}, [3]int{20, 1, 1}, [3]int{20, 1, 1})}, 10, 2, false},
		{"a few in shared reads share the gap", []row.Timeline{twoGlued}, 10, 29, true},
		{"tokens unknown", []row.Timeline{chunks([3]int{0, 0, 0}, [3]int{10, 0, 1})}, 0, 0, false},
		{"only the first chunk's tokens unknown", []row.Timeline{chunks([3]int{0, 0, 0}, [3]int{10, 1, 1})}, 10, 1, true},
		{"usage counts as many as chunks", []row.Timeline{withUsage(chunks([3]int{0, 0, 0}, [3]int{10, 0, 1}), 2)}, 10, 1, true},
		{"usage counts more than chunks", []row.Timeline{withUsage(chunks([3]int{0, 0, 0}, [3]int{10, 0, 1}), 16)}, 0, 0, false},
		{"single chunk", []row.Timeline{chunks([3]int{0, 1, 0})}, 0, 0, false},
		{"no request", nil, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, valid := InterTokenLatencies(c.timelines)
			require.Equal(t, c.valid, valid)
			require.Len(t, got, c.count)
			if valid {
				require.Equal(t, c.want*1e6, Percentile(got, 0.5))
			}
		})
	}
	got, _ := InterTokenLatencies([]row.Timeline{twoGlued})
	require.Equal(t, []float64{10e6, 10e6, 10e6, 10e6}, got[17:21], "20 ms for two tokens")
}

func TestCycle(t *testing.T) {
	var cold, warm Pass
	cold.Add([]row.Timeline{answer(1000, 40)}, time.Second, 0, 1000)
	cold.Add([]row.Timeline{answer(1000, 60)}, time.Second, 250, 1000)
	warm.Add([]row.Timeline{answer(1000, 4)}, time.Second, 896, 1000)
	got, err := Cycle(cold, warm, 1, 1)
	require.NoError(t, err)
	values := make(map[string]float64)
	for _, m := range got {
		values[m.Unit] = m.Value
	}
	require.Equal(t, map[string]float64{
		"cold-mean-ttft-ns": 50e6, "cold-p50-ttft-ns": 40e6, "cold-p50-e2e-ns": 40e6, "cold-req/s": 1, "cold-in-tok/s": 1000,
		"warm-mean-ttft-ns": 4e6, "warm-p50-ttft-ns": 4e6, "warm-p50-e2e-ns": 4e6, "warm-req/s": 1, "warm-in-tok/s": 1000,
		"cold-hit-%": 12.5, "hit-%": 89.6, "match-%": 100,
	}, values)

	got, err = Cycle(Pass{}, Pass{}, 0, 0)
	require.NoError(t, err)
	require.Empty(t, got, "0/0 is no data")

	warm.HitTokens = 1300
	_, err = Cycle(cold, warm, 1, 1)
	require.ErrorContains(t, err, "hit-%: 130 is more than all")
}
