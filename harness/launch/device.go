package launch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// A DeviceRequest is what a container engine is asked to hand to a container.
// Field names are the engine API's.
type DeviceRequest struct {
	Driver       string     `json:",omitempty"`
	Count        int        `json:",omitempty"` // -1: all; not together with DeviceIDs
	DeviceIDs    []string   `json:",omitempty"`
	Capabilities [][]string `json:",omitempty"`
}

// GPUs asks for NVIDIA GPUs by their indices; for all of them without any. Driver
// and capabilities are given both, since some engine misses each of them.
func GPUs(indices ...string) *DeviceRequest {
	r := &DeviceRequest{Driver: "nvidia", Count: -1, Capabilities: [][]string{{"gpu"}}}
	if len(indices) > 0 {
		r.Count, r.DeviceIDs = 0, indices
	}
	return r
}

// createHook adds a device request to every create request that passes, because
// dockertest's host configuration has no field for one.
type createHook struct {
	next    http.RoundTripper
	devices *DeviceRequest
}

func (h createHook) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/containers/create") {
		return h.next.RoundTrip(r)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("reading a create request: %w", err)
	}
	if err := r.Body.Close(); err != nil {
		return nil, fmt.Errorf("reading a create request: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // sizes of memory are 64-bit
	var body map[string]any
	if err := decoder.Decode(&body); err != nil {
		return nil, fmt.Errorf("decoding a create request: %w", err)
	}
	host, _ := body["HostConfig"].(map[string]any)
	if host == nil {
		host = make(map[string]any)
		body["HostConfig"] = host
	}
	host["DeviceRequests"] = []*DeviceRequest{h.devices}
	if text, err = json.Marshal(body); err != nil {
		return nil, fmt.Errorf("encoding a create request: %w", err)
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return h.next.RoundTrip(r)
}
