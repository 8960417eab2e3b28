package verdict

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// The readings of a healthy warm pass over 8 prompts of 1024 tokens behind a
// cache with chunks of 64: usage stops one token short of each prompt.
func healthy() []Reading {
	engine := func(name string) Reading {
		return Reading{
			Witness: name, Source: name + " counter", Law: "min(floor(P/64)*64, P-1)", Expected: fixtures.Interval{Min: 8184, Max: 8184},
			Hits: 8184, Queries: 8192, ExpectedQueries: 8192, State: row.Known, Required: true,
		}
	}
	store := func(name string) Reading {
		return Reading{
			Witness: name, Source: name + " counter", Law: "floor(P/64)*64", Expected: fixtures.Interval{Min: 8192, Max: 8192},
			Hits: 8192, Queries: 8192, ExpectedQueries: 8192, State: row.Known, Required: true,
		}
	}
	usage, bytes := engine("usage"), store("bytes")
	usage.Queries, usage.ExpectedQueries = 0, 0
	bytes.Queries, bytes.ExpectedQueries = 0, 0
	return []Reading{usage, engine("engine"), store("backend"), bytes}
}

const (
	usage = iota
	engine
	backend
	bytes
)

func TestReconcile(t *testing.T) {
	loosen := func(r []Reading) {
		for i := range r {
			r[i].Expected.Min = 1000
		}
	}
	for _, c := range []struct {
		name     string
		phase    string
		change   func([]Reading)
		outcomes []Outcome
		findings []row.Code
	}{
		{"healthy", "warm", func([]Reading) {}, []Outcome{Agrees, Agrees, Agrees, Agrees}, nil},
		{
			"every witness one block short", "warm",
			func(r []Reading) {
				for i := range r {
					r[i].Hits -= 64
				}
			},
			[]Outcome{Disagrees, Disagrees, Disagrees, Disagrees},
			[]row.Code{row.HitBelowOracle},
		},
		{
			"every witness one token above", "warm",
			func(r []Reading) {
				for i := range r {
					r[i].Hits++
					r[i].Queries++
					r[i].ExpectedQueries++
				}
				r[usage].ExpectedQueries, r[bytes].ExpectedQueries = 0, 0
			},
			[]Outcome{Disagrees, Disagrees, Disagrees, Disagrees},
			[]row.Code{row.HitAboveOracle},
		},
		{
			"engine counter stuck", "warm", func(r []Reading) { r[engine].Hits = 0 },
			[]Outcome{Agrees, Disagrees, Agrees, Agrees},
			[]row.Code{row.CounterStuck},
		},
		{
			"engine counter off by one", "warm", func(r []Reading) { r[engine].Hits-- },
			[]Outcome{Agrees, Disagrees, Agrees, Agrees},
			[]row.Code{row.WitnessDisagrees},
		},
		{
			"backend counter stuck", "warm", func(r []Reading) { r[backend].Hits = 0 },
			[]Outcome{Agrees, Agrees, Disagrees, Agrees},
			[]row.Code{row.CounterStuck},
		},
		{
			"hits and queries stand still", "warm", func(r []Reading) { r[engine].Hits, r[engine].Queries = 0, 0 },
			[]Outcome{Agrees, NoQueries, Agrees, Agrees},
			[]row.Code{row.NoQueries},
		},
		{
			"counted twice", "warm", func(r []Reading) { r[engine].Hits, r[engine].Queries = 16368, 16384 },
			[]Outcome{Agrees, Disagrees, Agrees, Agrees},
			[]row.Code{row.CountedTwice},
		},
		{
			"foreign queries", "warm", func(r []Reading) { r[backend].Queries += 64 },
			[]Outcome{Agrees, Agrees, Agrees, Agrees},
			[]row.Code{row.ForeignTraffic},
		},
		{
			"a request did not ask", "warm", func(r []Reading) { r[backend].Queries -= 64; r[backend].Hits -= 64 },
			[]Outcome{Agrees, Agrees, Disagrees, Agrees},
			[]row.Code{row.WitnessDisagrees, row.WitnessDisagrees},
		},
		{
			"reported but recomputed", "warm", func(r []Reading) { r[bytes].Hits = 0 },
			[]Outcome{Agrees, Agrees, Agrees, LoadShort},
			[]row.Code{row.LoadShorterThanLookup},
		},
		{
			"load short and usage says so", "warm", func(r []Reading) { r[usage].Hits, r[engine].Hits, r[bytes].Hits = 4000, 4000, 4001 },
			[]Outcome{Disagrees, Disagrees, Agrees, LoadShort},
			[]row.Code{row.LoadShorterThanLookup, row.HitBelowOracle},
		},
		{
			"moved more than found", "warm", func(r []Reading) { r[bytes].Hits += 64 },
			[]Outcome{Agrees, Agrees, Agrees, Disagrees},
			[]row.Code{row.WitnessDisagrees},
		},
		{
			"cold with hits", "cold",
			func(r []Reading) {
				for i := range r {
					r[i].Expected = fixtures.Interval{}
				}
			},
			[]Outcome{Disagrees, Disagrees, Disagrees, Disagrees},
			[]row.Code{row.ColdNotCold},
		},
		{
			"cold within the plan's own sharing", "cold", loosen,
			[]Outcome{Agrees, Agrees, Agrees, Agrees},
			nil,
		},
		{
			"inside the interval, yet not equal under one law", "cold",
			func(r []Reading) { loosen(r); r[engine].Hits = 2000 },
			[]Outcome{Agrees, Disagrees, Agrees, Agrees},
			[]row.Code{row.WitnessDisagrees},
		},
		{
			"load shorter inside the interval", "cold",
			func(r []Reading) { loosen(r); r[bytes].Hits = 2000 },
			[]Outcome{Agrees, Agrees, Agrees, LoadShort},
			[]row.Code{row.LoadShorterThanLookup},
		},
		{
			"load below its own interval, of another law", "cold",
			func(r []Reading) { loosen(r); r[bytes].Law = "bytes"; r[bytes].Hits = 999 },
			[]Outcome{Agrees, Agrees, Agrees, LoadShort},
			[]row.Code{row.LoadShorterThanLookup},
		},
		{
			"load inside its own interval, of another law", "cold",
			func(r []Reading) { loosen(r); r[bytes].Law = "bytes"; r[bytes].Hits = 1000 },
			[]Outcome{Agrees, Agrees, Agrees, Agrees},
			nil,
		},
		{
			"found more than is there, moved what is, by another law", "warm",
			func(r []Reading) {
				r[bytes].Law = "bytes"
				r[backend].Hits, r[backend].Queries, r[backend].ExpectedQueries = 8256, 8256, 8256
			},
			[]Outcome{Agrees, Agrees, Disagrees, LoadShort},
			[]row.Code{row.LoadShorterThanLookup, row.WitnessDisagrees},
		},
		{
			"usage unknown", "warm", func(r []Reading) { r[usage].State, r[usage].Hits = row.Absent, 0 },
			[]Outcome{Unknown, Agrees, Agrees, Agrees},
			[]row.Code{row.WitnessMissing},
		},
		{
			"usage unknown, counters below", "warm", func(r []Reading) { r[usage].State = row.Absent; r[engine].Hits--; r[backend].Hits--; r[bytes].Hits-- },
			[]Outcome{Unknown, Disagrees, Disagrees, Disagrees},
			[]row.Code{row.WitnessMissing, row.HitBelowOracle},
		},
		{
			"optional witness unknown", "warm", func(r []Reading) { r[bytes].State, r[bytes].Required = row.Absent, false },
			[]Outcome{Agrees, Agrees, Agrees, Unknown},
			nil,
		},
		{
			"state not set", "warm", func(r []Reading) { r[bytes].State = "" },
			[]Outcome{Agrees, Agrees, Agrees, Unknown},
			[]row.Code{row.WitnessMissing},
		},
		{
			"restart", "warm", func(r []Reading) { r[backend].State, r[backend].Required = row.Restarted, false },
			[]Outcome{Agrees, Agrees, Reset, Agrees},
			[]row.Code{row.CounterReset},
		},
		{
			"impossible", "warm", func(r []Reading) { r[engine].State = row.Impossible },
			[]Outcome{Agrees, Impossible, Agrees, Agrees},
			[]row.Code{row.ImpossibleCounter},
		},
		{
			"more hits than queries", "warm", func(r []Reading) { r[engine].Queries = 8000 },
			[]Outcome{Agrees, Impossible, Agrees, Agrees},
			[]row.Code{row.ImpossibleCounter},
		},
		{
			"not a number", "warm", func(r []Reading) { r[engine].Hits = math.NaN() },
			[]Outcome{Agrees, Impossible, Agrees, Agrees},
			[]row.Code{row.ImpossibleCounter},
		},
		{
			"nobody says anything", "warm",
			func(r []Reading) {
				for i := range r {
					r[i].State = row.Absent
				}
			},
			[]Outcome{Unknown, Unknown, Unknown, Unknown},
			[]row.Code{row.WitnessMissing, row.WitnessMissing, row.WitnessMissing, row.WitnessMissing},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			readings := healthy()
			c.change(readings)
			lines, findings := Reconcile(c.phase, readings)
			var outcomes []Outcome
			for _, l := range lines {
				outcomes = append(outcomes, l.Outcome)
			}
			require.Equal(t, c.outcomes, outcomes)
			require.Equal(t, c.findings, codes(findings))
			for _, f := range findings {
				require.Equal(t, c.phase, f.Phase)
				require.NotEmpty(t, f.Advice)
			}
			_, err := json.Marshal(lines)
			require.NoError(t, err)
		})
	}
	lines, findings := Reconcile("warm", nil)
	require.Empty(t, lines)
	require.Empty(t, findings)
}

func TestReconcileSaysBothNumbersAndTheLaw(t *testing.T) {
	readings := healthy()
	readings[usage].Hits = 8120
	_, findings := Reconcile("warm", readings)
	require.Equal(t, []row.Code{row.HitBelowOracle, row.WitnessDisagrees, row.WitnessDisagrees}, codes(findings), "bytes says what backend said")
	require.Equal(t, "usage (usage counter) reports 8120 hit tokens, the plan gives 8184 under min(floor(P/64)*64, P-1); the others: engine 8184 of 8184, backend 8192 of 8192, bytes 8192 of 8192", findings[0].Evidence)
	require.Equal(t, "engine (engine counter) reports 8184 hit tokens, usage (usage counter) 8120; both follow min(floor(P/64)*64, P-1), the plan gives 8184", findings[1].Evidence)
	require.Equal(t, "backend (backend counter) reports 8192 hit tokens where the plan gives 8192 under floor(P/64)*64, usage (usage counter) 8120 where it gives 8184 under min(floor(P/64)*64, P-1)", findings[2].Evidence)
}

func TestTable(t *testing.T) {
	readings := healthy()
	readings[engine].Hits = 0
	readings[backend].State = row.Restarted
	readings[bytes].State, readings[bytes].Required = row.Absent, false
	lines, _ := Reconcile("warm", readings)
	require.Equal(t, `witness  hit tokens  expected  law                       queries       outcome                 source
usage    8184        8184      min(floor(P/64)*64, P-1)  -             agrees                  usage counter
engine   0           8184      min(floor(P/64)*64, P-1)  8192 of 8192  disagrees               engine counter
backend  unknown     8192      floor(P/64)*64            unknown       reset                   backend counter
bytes    unknown     8192      floor(P/64)*64            -             unknown (not required)  bytes counter
`, Table(lines))
}
