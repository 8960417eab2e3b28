package daser

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini/model"
)

// damaged is a stack whose document at the second place is damaged in the
// store, checked while it is reused.
func damaged(t *testing.T, damage func(values []float32)) (report Report, key string) {
	t.Helper()
	s := newStack(t, Chunk)
	first, second := tokens(1, size), tokens(2, 2*size)
	ids := []string{s.upload(t, first), s.upload(t, second)}
	at := chunkKey(littleEndian(second), "")
	require.True(t, s.store.objects.Mutate(at, damage))
	s.check.Switch(true)
	require.Equal(t, 3*size, s.infer(t, tokens(3, 5), true, ids...).cached)
	return s.check.Report(), at.String()
}

// TestCheckFindsDamage: in a key that was moved, in a value, and what is below
// its bound.
func TestCheckFindsDamage(t *testing.T) {
	m := nano()
	length := m.BlockLen(size)
	keyAt, _ := m.Span(size, 1, model.Keys, 3)
	valueAt, _ := m.Span(size, 0, model.Values, 5)
	flip := func(at int, bit uint) func([]float32) {
		return func(v []float32) { v[at] = math.Float32frombits(math.Float32bits(v[at]) ^ 1<<bit) }
	}
	for _, test := range []struct {
		name   string
		damage func([]float32)
		want   *Mismatch // nil: none
	}{
		{"nothing", func([]float32) {}, nil},
		{"the lowest bit of a value", flip(length+valueAt+2, 0), &Mismatch{Token: size + size + 5, Layer: 0, Plane: "values", Index: 2}},
		{"the exponent of a key", flip(keyAt+4, 23), &Mismatch{Token: size + 3, Layer: 1, Plane: "keys", Index: 0}}, // its pair begins at 0
		{"a middle bit of a key", flip(keyAt, 8), &Mismatch{Token: size + 3, Layer: 1, Plane: "keys", Index: 0}},
		{"a value that is not a number", func(v []float32) { v[valueAt] = float32(math.NaN()) }, &Mismatch{Token: size + 5, Plane: "values"}},
		{"a key that is not a number", func(v []float32) { v[keyAt] = float32(math.NaN()) }, &Mismatch{Token: size + 3, Layer: 1, Plane: "keys"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			report, key := damaged(t, test.damage)
			require.True(t, report.On)
			require.Equal(t, 2, report.Chunks)
			require.Equal(t, 3*size, report.Tokens)
			require.Empty(t, report.Errors)
			if test.want == nil {
				require.Zero(t, report.Damaged)
				require.Empty(t, report.Mismatches)
				return
			}
			require.Equal(t, 1, report.Damaged)
			got := report.Mismatches[0]
			require.NotEqual(t, got.Got, got.Want)
			require.NotEmpty(t, got.Request)
			require.Equal(t, key, got.Chunk)
			require.Contains(t, got.String(), got.Plane)
			got.Request, got.Chunk, got.Got, got.Want = "", "", "", ""
			require.Equal(t, *test.want, got)
		})
	}
}

// TestCheckOfWhatWasNotMoved: there, keys must agree to the last bit, too.
func TestCheckOfWhatWasNotMoved(t *testing.T) {
	s := newStack(t, Chunk)
	ids := tokens(1, 2*size)
	id := s.upload(t, ids)
	at, _ := nano().Span(size, 0, model.Keys, 7)
	require.True(t, s.store.objects.Mutate(chunkKey(littleEndian(ids), ""), func(v []float32) {
		v[at] = math.Float32frombits(math.Float32bits(v[at]) ^ 1)
	}))
	s.check.Switch(true)
	s.infer(t, []int32{9}, true, id)
	require.Equal(t, 1, s.check.Report().Damaged)
	require.Equal(t, 7, s.check.Report().Mismatches[0].Token)
}

// TestCheckListsEveryPlane: one line for each plane of each layer.
func TestCheckListsEveryPlane(t *testing.T) {
	report, _ := damaged(t, func(v []float32) { clear(v) })
	require.Equal(t, 1, report.Damaged)
	require.Len(t, report.Mismatches, 2*nano().Config().Layers)
	for _, m := range report.Mismatches {
		require.Equal(t, size, m.Token)
		require.Zero(t, m.Index)
	}
}

// TestCheckIsOffUnlessAsked, and a new report begins with each switch.
func TestCheckIsOffUnlessAsked(t *testing.T) {
	s := newStack(t, Chunk)
	id := s.upload(t, tokens(1, 2*size))
	s.infer(t, []int32{9}, true, id)
	require.Zero(t, s.check.Report().Chunks)

	read := func(method, path string) (r Report) {
		status, answer := call(t, method, s.url+path, nil)
		require.Equal(t, http.StatusOK, status, answer)
		require.NoError(t, json.Unmarshal([]byte(answer), &r))
		return r
	}
	require.False(t, read(http.MethodGet, "/debug/kvcheck").On)
	require.True(t, read(http.MethodPost, "/debug/kvcheck?on=true").On)
	s.infer(t, []int32{9}, true, id)
	require.Equal(t, Report{On: true, Chunks: 1, Tokens: 2 * size, Mismatches: []Mismatch{}, Errors: []string{}}, read(http.MethodGet, "/debug/kvcheck"))
	require.Equal(t, 1, read(http.MethodPost, "/debug/kvcheck?on=false").Chunks, "the report stays")
	s.infer(t, []int32{9}, true, id)
	require.Equal(t, 1, read(http.MethodGet, "/debug/kvcheck").Chunks)
	require.Zero(t, read(http.MethodPost, "/debug/kvcheck?on=true").Chunks)

	s.refused(t, http.MethodPost, "/debug/kvcheck", nil, http.StatusBadRequest, "must be true or false")
	s.refused(t, http.MethodDelete, "/debug/kvcheck", nil, http.StatusMethodNotAllowed, "Method Not Allowed")
	safe := newStack(t, Chunk, func(p *plan) { p.safe = true })
	safe.refused(t, http.MethodGet, "/debug/kvcheck", nil, http.StatusForbidden, "without -unsafe")
	safe.refused(t, http.MethodPost, "/debug/kvcheck?on=true", nil, http.StatusForbidden, "without -unsafe")
}

// TestCheckOfPrefixes: blocks of a prompt are one text, bit for bit.
func TestCheckOfPrefixes(t *testing.T) {
	s := newStack(t, Prefix)
	s.check.Switch(true)
	ids := tokens(1, 4*size)
	s.complete(t, ids, nil)
	s.drain(t)
	require.Equal(t, 4*size-1, s.complete(t, ids, nil).cached)
	require.Equal(t, Report{On: true, Chunks: 1, Tokens: 4 * size, Mismatches: []Mismatch{}, Errors: []string{}}, s.check.Report())
	keys := blockKeys(nano().Fingerprint(), request("x", ids), size)
	require.True(t, s.store.objects.Mutate(keys[2], func(v []float32) { v[0] = 0 }))
	s.complete(t, slices.Clone(ids), nil)
	require.Equal(t, 1, s.check.Report().Damaged)
	require.Equal(t, 2*size, s.check.Report().Mismatches[0].Token)
}
