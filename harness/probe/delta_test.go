package probe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

func TestDelta(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after string
		match         map[string]string
		want          float64
		state         row.State
	}{
		{"grew", "c_total 1\n", "c_total 4\n", nil, 3, row.Known},
		{"stood still", "c_total 4\n", "c_total 4\n", nil, 0, row.Known},
		{"absent", "d_total 1\n", "d_total 2\n", nil, 0, row.Absent},
		{"first use", "up 1\n", "c_total 4\n", nil, 4, row.Known},
		{"new label set", "c_total{e=\"0\"} 1\n", "c_total{e=\"0\"} 2\nc_total{e=\"1\"} 5\n", nil, 6, row.Known},
		{"label set vanished", "c_total{e=\"0\"} 1\nc_total{e=\"1\"} 5\n", "c_total{e=\"0\"} 20\n", nil, 0, row.Restarted},
		{"an empty label came, with another value of it", "c_total{t=\"d\"} 50\n", "c_total{s=\"\",t=\"d\"} 50\nc_total{s=\"one\",t=\"d\"} 2\n", nil, 2, row.Known},
		{"an empty label went", "c_total{s=\"\",t=\"d\"} 50\n", "c_total{t=\"d\"} 51\n", nil, 1, row.Known},
		{"an empty label came, and the count went down", "c_total{t=\"d\"} 50\n", "c_total{s=\"\",t=\"d\"} 2\n", nil, 0, row.Restarted},
		{"split by a label", "c_total{t=\"d\"} 50\n", "c_total{s=\"a\",t=\"d\"} 20\nc_total{s=\"b\",t=\"d\"} 33\n", nil, 3, row.Known},
		{"split by a label, and less", "c_total{t=\"d\"} 50\n", "c_total{s=\"a\",t=\"d\"} 20\nc_total{s=\"b\",t=\"d\"} 3\n", nil, 0, row.Restarted},
		{"split, beside one that was there", "c_total 9\nc_total{s=\"b\"} 5\n", "c_total{s=\"a\"} 9\nc_total{s=\"b\"} 6\n", nil, 1, row.Known},
		{"two that are one and not enough for both", "c_total 4\nc_total{t=\"d\"} 5\n", "c_total{s=\"a\",t=\"d\"} 6\n", nil, 0, row.Restarted},
		{"vanished", "c_total 1\n", "up 1\n", nil, 0, row.Restarted},
		{"one engine went down, the sum went up", "c_total{e=\"0\"} 1\nc_total{e=\"1\"} 5\n", "c_total{e=\"0\"} 20\nc_total{e=\"1\"} 4\n", nil, 0, row.Restarted},
		{"process started anew", "process_start_time_seconds 1\nc_total 1\n", "process_start_time_seconds 2\nc_total 9\n", nil, 0, row.Restarted},
		{"same process", "process_start_time_seconds 1.7e9\nc_total 1\n", "process_start_time_seconds 1700000000\nc_total 9\n", nil, 8, row.Known},
		{"counter created anew", "c_total 1\nc_created 1\n", "c_total 9\nc_created 2\n", nil, 0, row.Restarted},
		{"another counter created anew", "c_total 1\nd_created 1\n", "c_total 9\nd_created 2\n", nil, 8, row.Known},
		{"created is not the counter", "c_created 1.7e9\n", "c_created 1.7e9\n", nil, 0, row.Absent},
		{"spelling changed", "c 5\n", "c_total 7\n", nil, 2, row.Known},
		{"both spellings are not added", "c 1\nc_total 1\n", "c 9\nc_total 3\n", nil, 2, row.Known},
		{"matched", "c_total{s=\"a\",e=\"0\"} 1\nc_total{s=\"b\",e=\"0\"} 1\n", "c_total{e=\"0\",s=\"a\"} 3\nc_total{s=\"b\",e=\"0\"} 9\n", map[string]string{"s": "a"}, 2, row.Known},
		{"label set not there", "c_total{s=\"b\"} 1\n", "c_total{s=\"b\"} 1\n", map[string]string{"s": "a"}, 0, row.Absent},
		{"negative", "c_total -5\n", "c_total -4\n", nil, 0, row.Impossible},
		{"negative and new", "up 1\n", "c_total -4\n", nil, 0, row.Impossible},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, state := Delta(parse(t, c.before), parse(t, c.after), "c_total", c.match)
			require.Equal(t, c.state, state)
			require.Equal(t, c.want, got)
		})
	}
	t.Run("no snapshot before", func(t *testing.T) {
		_, state := Delta(row.Snapshot{}, parse(t, "c_total 90000\n"), "c_total", nil)
		require.Equal(t, row.Absent, state, "a lifetime total is no change")
	})
	t.Run("empty page before", func(t *testing.T) {
		got, state := Delta(parse(t, ""), parse(t, "c_total 9\n"), "c_total", nil)
		require.Equal(t, row.Known, state)
		require.Equal(t, 9.0, got)
	})
}

func TestSum(t *testing.T) {
	s := parse(t, `c_total{e="0",s="a"} 1
c_total{e="1",s="a"} 2
c_total{e="1",s="b"} 4
`)
	for _, c := range []struct {
		metric string
		match  map[string]string
		want   float64
		ok     bool
	}{
		{"c_total", nil, 7, true},
		{"c", nil, 7, true},
		{"c", map[string]string{"s": "a"}, 3, true},
		{"c", map[string]string{"s": "a", "e": "1"}, 2, true},
		{"c", map[string]string{"s": "c"}, 0, false},
		{"c", map[string]string{"zone": ""}, 0, false},
		{"c_total_total", nil, 7, true}, // a bare name that ends in _total
		{"d", nil, 0, false},
	} {
		got, ok := Sum(s, c.metric, c.match)
		require.Equal(t, c.ok, ok, "Sum(%q, %v)", c.metric, c.match)
		require.Equal(t, c.want, got, "Sum(%q, %v)", c.metric, c.match)
	}
}

func TestCounting(t *testing.T) {
	known := func(hits, queries float64) row.Count {
		return row.Count{Hits: hits, Queries: queries, HasQueries: true, State: row.Known}
	}
	for _, c := range []struct {
		name          string
		count         Counting
		before, after string
		want          row.Count
	}{
		{"more hits than queries", Counter("h", "q"), "h 0\nq 0\n", "h 1300\nq 1000\n", row.Count{Hits: 1300, Queries: 1000, HasQueries: true, State: row.Impossible}},
		{"equal", Counter("h", "q"), "h 0\nq 0\n", "h 1000\nq 1000\n", known(1000, 1000)},
		{"no query counter wanted", Counter("h", ""), "h 1\n", "h 8\n", row.Count{Hits: 7, State: row.Known}},
		{"no query counter exported", Counter("h", "q"), "h 1\n", "h 8\n", row.Count{Hits: 7, State: row.Known}},
		{"hits absent", Counter("h", "q"), "q 1\n", "q 8\n", row.Count{Queries: 7, HasQueries: true, State: row.Absent}},
		{"queries restarted", Counter("h", "q"), "h 1\nq 8\n", "h 2\nq 1\n", row.Count{Hits: 1, State: row.Restarted}},
		{"by source, only computed so far", VLLMCached(), "up 1\n", "vllm:prompt_tokens_by_source_total{source=\"local_compute\"} 512\n", known(0, 512)},
		{"by source, both tiers", VLLMCached(), "up 1\n", `vllm:prompt_tokens_by_source_total{source="local_compute"} 2
vllm:prompt_tokens_by_source_total{source="local_cache_hit"} 3
vllm:prompt_tokens_by_source_total{source="external_kv_transfer"} 5
`, known(8, 10)},
		{"no sources, but totals", VLLMCached(), "up 1\n", "vllm:prompt_tokens_cached_total 8\nvllm:prompt_tokens_total 10\n", known(8, 10)},
		{"by source absent", VLLMCached(), "up 1\n", "up 1\n", row.Count{State: row.Absent}},
		{"bytes", BytesMoved("b", 2048), "b_total 2048\n", "b_total 133120\n", row.Count{Hits: 64, State: row.Known}},
		{"bytes, part of a token", BytesMoved("b", 2048), "b_total 0\n", "b_total 1024\n", row.Count{Hits: 0.5, State: row.Known}},
		{"bytes of unknown tokens", BytesMoved("b", 0), "b_total 0\n", "b_total 1024\n", row.Count{State: row.Absent}},
		{"llama.cpp without cached", LlamaCpp(), "llamacpp:prompt_tokens_total 0\n", "llamacpp:prompt_tokens_total 9\n", row.Count{State: row.Absent}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, c.count(parse(t, c.before), parse(t, c.after)))
		})
	}
}

func TestHitRate(t *testing.T) {
	for _, c := range []struct {
		name   string
		count  row.Count
		rate   float64
		reason Reason
	}{
		{"known", row.Count{Hits: 1, Queries: 4, HasQueries: true, State: row.Known}, 0.25, ""},
		{"none hit", row.Count{Queries: 4, HasQueries: true, State: row.Known}, 0, ""},
		{"0/0", row.Count{HasQueries: true, State: row.Known}, 0, NoQueries},
		{"1/0", row.Count{Hits: 1, HasQueries: true, State: row.Known}, 0, Unbelievable},
		{"1300/1000", row.Count{Hits: 1300, Queries: 1000, HasQueries: true, State: row.Known}, 0, Unbelievable},
		{"hits alone", row.Count{Hits: 5, State: row.Known}, 0, NotExported},
		{"absent", row.Count{State: row.Absent}, 0, NotExported},
		{"zero value", row.Count{}, 0, NotExported},
		{"restarted", row.Count{Hits: 1, Queries: 4, HasQueries: true, State: row.Restarted}, 0, CounterReset},
		{"impossible", row.Count{Hits: 1, Queries: 4, HasQueries: true, State: row.Impossible}, 0, Unbelievable},
	} {
		t.Run(c.name, func(t *testing.T) {
			rate, reason, ok := HitRate(c.count)
			require.Equal(t, c.reason, reason)
			require.Equal(t, c.reason == "", ok)
			require.Equal(t, c.rate, rate)
		})
	}
}
