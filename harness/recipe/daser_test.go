package recipe

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A DaseR that refuses token ids is one that takes texts alone. One in trouble is in
// trouble.
func TestTakesTokens(t *testing.T) {
	for status, texts := range map[int]bool{http.StatusUnprocessableEntity: true, http.StatusNotFound: true, http.StatusInternalServerError: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }))
		t.Cleanup(server.Close)
		err := newDaser(server.URL, true).takesTokens(t.Context(), []int32{1})
		require.ErrorContains(t, err, http.StatusText(status))
		if texts {
			require.ErrorContains(t, err, "takes documents as texts alone")
			continue
		}
		require.NotContains(t, err.Error(), "texts alone")
	}
	err := newDaser("http://127.0.0.1:9", true).takesTokens(t.Context(), []int32{1})
	require.ErrorContains(t, err, "uploading a document by token ids: asking DaseR")
}
