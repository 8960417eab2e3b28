package fault

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/model"
)

func TestEveryFaultIsDescribed(t *testing.T) {
	seen := map[Fault]bool{}
	for _, f := range slices.Concat(All(), Daser()) {
		require.Regexp(t, regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`), string(f))
		require.False(t, seen[f], "%s is listed twice", f)
		seen[f] = true
		require.NotEmpty(t, f.About(), f)
		if f != SlowFirstEmpty && f != NumericNoise && f != SlowLoad {
			require.NotEmpty(t, f.Findings(), f)
		}
		got, err := Parse(string(f))
		require.NoError(t, err)
		require.Equal(t, []Fault{f}, got)
	}
	require.Len(t, seen, 47)
	for _, f := range Daser() {
		require.True(t, f.NeedsDaser(), f)
		require.False(t, f.NeedsStore() || f.AtStart(), f)
		require.NotContains(t, All(), f, "rows without DaseR have nothing to do with it")
	}
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		list string
		want []Fault
		err  string
	}{
		{"", nil, ""},
		{"bit-flip", []Fault{BitFlip}, ""},
		{"stall, reset-noop", []Fault{Stall, ResetNoop}, ""},
		{"bitflip", nil, `fault "bitflip" is not known; there are bit-flip, swapped-blocks,`},
		{"bit-flip,", nil, `fault "" is not known`},
		{"stall,stall", nil, `fault "stall" is named twice`},
	} {
		t.Run(test.list, func(t *testing.T) {
			got, err := Parse(test.list)
			require.Equal(t, test.want, got)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err)
			}
		})
	}
	_, err := Parse("?")
	for _, f := range slices.Concat(All(), Daser()) {
		require.True(t, strings.Contains(err.Error(), string(f)), "the message names %s", f)
	}
}

func TestPlant(t *testing.T) {
	i := NewInjector(nil, 4)
	require.Empty(t, i.Planted())
	require.ErrorContains(t, i.Plant(BitFlip, "nope"), `fault "nope" is not known`)
	require.ErrorContains(t, i.Plant(BlockSizeIgnored), "must be given when the stack starts")
	require.Empty(t, i.Planted(), "all or nothing")

	require.NoError(t, i.Plant(Stall, BitFlip))
	require.NoError(t, i.Plant(NaN))
	require.Equal(t, []Fault{BitFlip, NaN, Stall}, i.Planted())
	i.Clear(NaN)
	require.Equal(t, []Fault{BitFlip, Stall}, i.Planted())
	i.Clear()
	require.Empty(t, i.Planted())
}

func nano(t *testing.T) *model.Model {
	t.Helper()
	m, err := model.New(model.Nano())
	require.NoError(t, err)
	return m
}
