package lmcache

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// get reads from the HTTP side; into may be nil.
func get(t *testing.T, url string, into any) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	return decodeBody(t, response, into)
}

func post(t *testing.T, url, body string, into any) (int, string) {
	t.Helper()
	response, err := http.Post(url, "application/json", bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	return decodeBody(t, response, into)
}

func decodeBody(t *testing.T, response *http.Response, into any) (int, string) {
	t.Helper()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	if into != nil {
		require.NoError(t, json.Unmarshal(data, into), string(data))
	}
	return response.StatusCode, string(data)
}

// state is the L1 part of /status.
func state(t *testing.T, s *Server) l1Manager {
	t.Helper()
	var st status
	get(t, s.URL()+"/status", &st)
	return st.StorageManager.L1
}
