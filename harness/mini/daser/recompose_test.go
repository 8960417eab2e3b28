package daser

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRecomposed: documents in another order hit in chunk mode and not in
// prefix mode. Chunk reuse is lossy where a document is moved, the same each
// time, and exact where none is.
func TestRecomposed(t *testing.T) {
	prefix, a, b, task := tokens(9, size), tokens(1, 4*size), tokens(2, 6*size), tokens(3, 7)
	ab, ba := slices.Concat(prefix, a, b, task), slices.Concat(prefix, b, a, task)
	whole := 11 * size

	t.Run("prefix", func(t *testing.T) {
		s := newStack(t, Prefix)
		cold := s.complete(t, ab, nil)
		s.drain(t)
		warm := s.complete(t, ab, nil)
		require.Equal(t, whole, warm.cached)
		requireSame(t, cold, warm)
		require.Equal(t, size, s.complete(t, ba, nil).cached, "the prefix alone")
	})

	t.Run("chunk", func(t *testing.T) {
		s := newStack(t, Chunk, func(p *plan) { p.server.Prefix = prefix })
		s.check.Switch(true)
		first, second := s.upload(t, a), s.upload(t, b)
		for name, order := range map[string][]string{"as uploaded": {first, second}, "recomposed": {second, first}} {
			t.Run(name, func(t *testing.T) {
				full := s.infer(t, task, false, order...)
				require.Zero(t, full.cached)
				reused := s.infer(t, task, true, order...)
				require.Equal(t, whole, reused.cached)
				require.NotEqual(t, full.logprobs, reused.logprobs, "no attention between documents: lossy")
				requireSame(t, reused, s.infer(t, task, true, order...))
			})
		}
		t.Run("the first document is exact", func(t *testing.T) {
			bare := object{"doc_ids": []string{first}, "task_token_ids": task, "prefix_token_ids": []int32{}}
			reused := s.inferBody(t, bare)
			require.Equal(t, 4*size, reused.cached)
			bare["use_kv_cache"] = false
			requireSame(t, s.inferBody(t, bare), reused)
		})
		report := s.check.Report()
		require.Zero(t, report.Damaged, "%v", report.Mismatches)
		require.Empty(t, report.Errors)
		require.Equal(t, 2*2*3+1, report.Chunks, "two orders, twice, three chunks; and one alone")
	})
}

// TestManyAtOnce uploads, asks, deletes and drains concurrently. The race
// detector looks on; every answer must be that of the quiet stack.
func TestManyAtOnce(t *testing.T) {
	s := newStack(t, Chunk, func(p *plan) { p.server.Prefix = tokens(9, size) })
	s.check.Switch(true)
	task := tokens(50, 5)
	shared := s.upload(t, tokens(1, 2*size))
	want := s.infer(t, task, true, shared)
	t.Run("workers", func(t *testing.T) {
		for worker := range 4 {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for round := range 3 {
					id := s.upload(t, tokens(10+worker%2, (1+round)*size)) // two workers share each document
					got := s.infer(t, task, true, shared, id)
					require.Equal(t, size+2*size+(1+round)*size, got.cached)
					requireSame(t, want, s.infer(t, task, true, shared))
					s.do(t, http.MethodDelete, "/documents/"+id, nil, nil)
					s.drain(t)
					s.do(t, http.MethodGet, "/documents", nil, nil)
				}
			})
		}
	})
	report := s.check.Report()
	require.Zero(t, report.Damaged, "%v", report.Mismatches)
	require.Positive(t, report.Chunks)
	require.Len(t, s.store.committed, 2, "prefix and the shared document")
}
