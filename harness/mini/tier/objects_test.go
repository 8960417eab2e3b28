package tier

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// one is the size in bytes of an object of the tests.
const one = 4

func open(t *testing.T, cfg Config) *Objects {
	t.Helper()
	o, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	return o
}

func key(i int) Key { return Key{byte(i)} }

func value(i int) []float32 { return []float32{float32(i)} }

// put puts the objects first to last, each of one value.
func put(t *testing.T, o *Objects, first, last int) {
	t.Helper()
	for i := first; i <= last; i++ {
		require.NoError(t, o.Put(key(i), value(i)))
	}
}

// places says where the objects first to last are, e.g. "221-": 1 and 2 in L2,
// 3 in L1, 4 gone.
func places(o *Objects, first, last int) (s string) {
	for i := first; i <= last; i++ {
		s += map[Tier]string{L1: "1", L2: "2", None: "-"}[o.Where(key(i))]
	}
	return s
}

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no L1", Config{}, "L1 of 0 bytes: must be positive"},
		{"watermark above 1", Config{L1Bytes: 1, Watermark: 1.1}, "watermark 1.1: must be in (0, 1]"},
		{"negative watermark", Config{L1Bytes: 1, Watermark: -0.1}, "watermark -0.1"},
		{"watermark that is no number", Config{L1Bytes: 1, Watermark: math.NaN()}, "watermark NaN"},
		{"ratio that leaves nothing", Config{L1Bytes: 1, Watermark: 0.5, Ratio: 0.5}, "ratio 0.5: must be below the watermark 0.5"},
		{"default ratio above the watermark", Config{L1Bytes: 1, Watermark: 0.1}, "ratio 0.2"},
		{"negative L2", Config{L1Bytes: 1, L2Dir: "x", L2Bytes: -1}, "L2 of -1 bytes"},
		{"L2 without a place", Config{L1Bytes: 1, L2Bytes: 1}, "without a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := New(test.cfg)
			require.ErrorContains(t, err, test.want)
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := New(Config{L1Bytes: 1, L2Dir: file})
	require.ErrorContains(t, err, "directory of L2")
}

func TestWatermark(t *testing.T) {
	for _, test := range []struct {
		name             string
		watermark, ratio float64
		puts             int
		want             string // without L2
	}{
		{"defaults, up to 80 %", 0, 0, 8, "11111111"},
		{"defaults, one more: down to 60 %", 0, 0, 9, "---111111"},
		{"defaults, up to 80 % again", 0, 0, 11, "---11111111"},
		{"defaults, the second time", 0, 0, 12, "------111111"},
		{"all of L1, no more than needed", 1, -1, 11, "-1111111111"},
		{"all of L1, half of it freed", 1, 0.5, 11, "------11111"},
		{"shares that no float64 has exactly", 0.7, 0.4, 8, "-----111"},
		{"the target is smaller than an object: it stays alone", 0.3, 0.25, 4, "---1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := Config{L1Bytes: 10 * one, Watermark: test.watermark, Ratio: test.ratio}
			o := open(t, cfg)
			put(t, o, 1, test.puts)
			require.Equal(t, test.want, places(o, 1, test.puts))
		})
	}
}

func TestLeavingL1KeepsTheFile(t *testing.T) {
	o := open(t, Config{L1Bytes: 10 * one, L2Dir: t.TempDir()})
	put(t, o, 1, 9)
	require.Equal(t, "222111111", places(o, 1, 9))
	data, from, err := o.Get(key(2))
	require.NoError(t, err)
	require.Equal(t, L2, from)
	require.Equal(t, value(2), data)
	require.Equal(t, "222111111", places(o, 1, 9), "reading does not bring it back to L1")
	data, from, err = o.Get(key(9))
	require.NoError(t, err)
	require.Equal(t, L1, from)
	require.Equal(t, value(9), data)
	data, from, err = o.Get(key(10))
	require.NoError(t, err)
	require.Equal(t, None, from)
	require.Nil(t, data)
	require.Equal(t, Stats{
		L1:     TierStats{Objects: 6, Bytes: 6 * one, Capacity: 10 * one, Evictions: 3, Hits: 1, HitBytes: one},
		L2:     TierStats{Objects: 9, Bytes: 9 * one, Hits: 1, HitBytes: one},
		Misses: 1,
	}, o.Stats())

	put(t, o, 2, 2)
	require.Equal(t, "212111111", places(o, 1, 9), "a Put does")
}

func TestOrderOfUse(t *testing.T) {
	for _, test := range []struct {
		name string
		use  func(*Objects) error
		want string
	}{
		{"put only", func(o *Objects) error { return nil }, "--11"},
		{"got", func(o *Objects) error { _, _, err := o.Get(key(1)); return err }, "1--1"},
		{"touched", func(o *Objects) error { o.Touch(key(1)); return nil }, "1--1"},
		{"touched in order, the first most of all", func(o *Objects) error { o.Touch(key(2), key(9), key(1)); return nil }, "-1-1"},
		{"looked at", func(o *Objects) error { o.Where(key(1)); o.Keys(); return nil }, "--11"},
		{"changed", func(o *Objects) error { o.Mutate(key(1), func([]float32) {}); return nil }, "--11"},
		{"put again", func(o *Objects) error { return o.Put(key(1), value(1)) }, "1--1"},
		{"deleted", func(o *Objects) error { o.Delete(key(2)); return nil }, "1-11"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := open(t, Config{L1Bytes: 3 * one, Watermark: 1, Ratio: 1.0 / 3})
			put(t, o, 1, 3)
			require.NoError(t, test.use(o))
			put(t, o, 4, 4)
			require.Equal(t, test.want, places(o, 1, 4))
		})
	}
}

func TestBoundedL2(t *testing.T) {
	dir := t.TempDir()
	o := open(t, Config{L1Bytes: 2 * one, Watermark: 1, Ratio: -1, L2Dir: dir, L2Bytes: 4 * one})
	put(t, o, 1, 4)
	require.Equal(t, "2211", places(o, 1, 4))
	o.Touch(key(1))
	put(t, o, 5, 5)
	require.Equal(t, "2-211", places(o, 1, 5), "the least recently used left L2")
	require.Equal(t, int64(1), o.Stats().L2.Evictions)
	require.Len(t, filesIn(t, dir), 4)
	require.ErrorContains(t, o.Put(key(6), make([]float32, 3)), "of 12 bytes: L1 has 8")

	small := open(t, Config{L1Bytes: 8 * one, Watermark: 1, Ratio: -1, L2Dir: t.TempDir(), L2Bytes: 2 * one})
	put(t, small, 1, 3)
	require.Equal(t, "111", places(small, 1, 3), "what left L2 may still be in L1")
	require.Equal(t, 2, small.Stats().L2.Objects)
	require.Len(t, small.Keys(), 3)
	require.ErrorContains(t, small.Put(key(1), make([]float32, 3)), "of 12 bytes: L2 has 8")
	require.Equal(t, "111", places(small, 1, 3), "what is refused changes nothing")
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	require.NoError(t, err)
	return found
}

func TestPutCopiesAndReplaces(t *testing.T) {
	o := open(t, Config{L1Bytes: 100, L2Dir: t.TempDir()})
	data := []float32{1, float32(math.Inf(1)), -0.5}
	require.NoError(t, o.Put(key(1), data))
	data[0] = 9
	got, _, err := o.Get(key(1))
	require.NoError(t, err)
	require.Equal(t, []float32{1, float32(math.Inf(1)), -0.5}, got)
	require.NoError(t, o.Put(key(1), value(7)))
	require.Equal(t, []float32{1, float32(math.Inf(1)), -0.5}, got, "a reader keeps what it got")
	got, _, err = o.Get(key(1))
	require.NoError(t, err)
	require.Equal(t, value(7), got)
	require.Equal(t, int64(one), o.Stats().L1.Bytes)
	require.Equal(t, int64(one), o.Stats().L2.Bytes)
}

func TestDeleteAndReset(t *testing.T) {
	dir := t.TempDir()
	o := open(t, Config{L1Bytes: 10 * one, L2Dir: dir})
	put(t, o, 1, 9)
	require.Equal(t, 3, o.Delete(key(1), key(2), key(9), key(9), key(77)))
	require.Equal(t, "--211111-", places(o, 1, 9))
	require.Len(t, filesIn(t, dir), 6)
	require.Equal(t, []Key{key(3), key(4), key(5), key(6), key(7), key(8)}, o.Keys())

	require.NoError(t, o.Reset())
	require.Empty(t, o.Keys())
	require.Empty(t, filesIn(t, dir))
	stats := o.Stats()
	require.Equal(t, TierStats{Capacity: 10 * one, Evictions: 3}, stats.L1, "neither is an eviction")
	require.Zero(t, stats.L2)
	put(t, o, 1, 9)
	require.Equal(t, "222111111", places(o, 1, 9))
}

func TestMutate(t *testing.T) {
	o := open(t, Config{L1Bytes: 10 * one, L2Dir: t.TempDir()})
	put(t, o, 1, 9)
	for _, i := range []int{1, 9} { // in L2, in both
		before, _, err := o.Get(key(i))
		require.NoError(t, err)
		require.True(t, o.Mutate(key(i), func(v []float32) { v[0] = 100 }))
		require.Equal(t, value(i), before, "a reader keeps what it got")
		after, _, err := o.Get(key(i))
		require.NoError(t, err)
		require.Equal(t, value(100), after)
	}
	put(t, o, 10, 20)
	after, from, err := o.Get(key(9))
	require.NoError(t, err)
	require.Equal(t, L2, from)
	require.Equal(t, value(100), after, "the damage is in both tiers")
	require.False(t, o.Mutate(key(77), func([]float32) { t.Error("called without an object") }))
}

func TestClose(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for it")
	o, err := New(Config{L1Bytes: 100, L2Dir: dir})
	require.NoError(t, err)
	other := open(t, Config{L1Bytes: 100, L2Dir: dir})
	put(t, o, 1, 2)
	put(t, other, 1, 1)
	require.NoError(t, o.Close())
	require.NoError(t, o.Close(), "again")
	require.Len(t, filesIn(t, dir), 1, "only its own files are gone")
	require.ErrorIs(t, o.Put(key(1), value(1)), ErrClosed)
	_, _, err = o.Get(key(1))
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, None, o.Where(key(1)))
}

func TestTierNames(t *testing.T) {
	require.Equal(t, "none l1 l2", fmt.Sprint(None, " ", L1, " ", L2))
}
