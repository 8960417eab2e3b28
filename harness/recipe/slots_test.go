package recipe

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSlotsOfOnePromptAtOnce: two requests with one prompt save two files, and
// the file of the next prompt is neither of them.
func TestSlotsOfOnePromptAtOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	s := newSlots(nil, Endpoints{Engine: server.URL, SlotDir: dir}, 2, server.Client())
	for _, prompt := range []string{"one", "one", "two"} {
		s.store(t.Context(), 0, prompt)
	}
	require.NoError(t, s.failed)
	one, _ := s.fileOf("one")
	two, _ := s.fileOf("two")
	require.NotEqual(t, one, two)
	for _, file := range []string{one, two} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
	}
	require.NoError(t, s.clear(t.Context()))
	s.store(t.Context(), 0, "three")
	three, _ := s.fileOf("three")
	require.NotContains(t, []string{one, two}, three)
}

// TestSlotsThatAreNotSaved: a store that fails is told once, and its prompt has no
// file that could be read or would have to be deleted.
func TestSlotsThatAreNotSaved(t *testing.T) {
	broken := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken {
			http.Error(w, "disk full", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	s := newSlots(nil, Endpoints{Engine: server.URL, SlotDir: t.TempDir()}, 1, server.Client())
	s.store(t.Context(), 0, "one")
	_, err := s.busy(t.Context())
	require.ErrorContains(t, err, "disk full")
	_, err = s.busy(t.Context())
	require.NoError(t, err, "another pass stores anew")
	_, stored := s.fileOf("one")
	require.False(t, stored)
	require.NoError(t, s.clear(t.Context()))

	broken = false
	s.store(t.Context(), 0, "one")
	_, stored = s.fileOf("one")
	require.True(t, stored)
}
