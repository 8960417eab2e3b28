package probe

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/row"
)

func TestParse(t *testing.T) {
	page := `# HELP h A histogram.
# TYPE h histogram
h_bucket{le="0.10"} 1
h_bucket{le="+Inf"} 3
h_sum 1.5
h_count 3
# TYPE q summary
q{quantile="0.5"} NaN
q_sum 2
q_count 4
c_total{model="a\"b\\c\nd",engine="1"} 1.5e+03 1796067007100
nan NaN
inf{x="+Inf"} +Inf
minus -Inf
untyped -4
`
	got, err := Parse("engine", strings.NewReader(page))
	require.NoError(t, err)
	require.Equal(t, row.Snapshot{Probe: "engine", Series: []row.Series{
		{Name: "c_total", Labels: map[string]string{"model": "a\"b\\c\nd", "engine": "1"}, Value: 1500},
		{Name: "h_bucket", Labels: map[string]string{"le": "0.10"}, Value: 1},
		{Name: "h_bucket", Labels: map[string]string{"le": "+Inf"}, Value: 3},
		{Name: "h_count", Value: 3},
		{Name: "h_sum", Value: 1.5},
		{Name: "q_count", Value: 4},
		{Name: "q_sum", Value: 2},
		{Name: "untyped", Value: -4},
	}}, got)
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ name, page, want string }{
		{"not metrics", "<!doctype html>\n", "parsing metrics of engine"},
		{"cut off", "a 1\nb 118", "unexpected end of input stream"},
		{"line number counts comments", "# HELP a b\n# TYPE a counter\n\na one\n", "line 4"},
		{"bad label", "a{x=1} 1\n", "parsing metrics of engine"},
		{"too long", strings.Repeat("\n", maxPage+1), "more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse("engine", strings.NewReader(c.page))
			require.ErrorContains(t, err, c.want)
			require.Empty(t, got.Series)
		})
	}
	t.Run("connection cut", func(t *testing.T) {
		cut := errors.New("connection reset")
		_, err := Parse("engine", iotest.ErrReader(cut))
		require.ErrorIs(t, err, cut)
	})
}

func FuzzParse(f *testing.F) {
	pages, err := filepath.Glob("testdata/*.txt")
	require.NoError(f, err)
	for _, path := range pages {
		page, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(page[:min(len(page), 4000)])
	}
	f.Add([]byte(`{"a.b",le="x"} 1` + "\n"))
	f.Add([]byte("# TYPE a histogram\na_bucket{le=\"1\"} NaN\na 3\n"))
	f.Fuzz(func(t *testing.T, page []byte) {
		s, err := Parse("engine", strings.NewReader(string(page)))
		if err != nil {
			require.Empty(t, s.Series)
			require.NotContains(t, err.Error(), "panicked")
			return
		}
		for _, series := range s.Series {
			require.NotEmpty(t, series.Name)
			require.False(t, math.IsNaN(series.Value) || math.IsInf(series.Value, 0))
			if _, ok := Sum(s, series.Name, series.Labels); !ok {
				t.Fatalf("Sum does not find %v", series)
			}
		}
		_, _ = BlockSize(s)
		Identities(s, s)
		HitRatios(map[string]row.Snapshot{"engine": s}, map[string]row.Snapshot{"engine": s})
	})
}
