package recipe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/kvproof/kvproof/harness/row"
)

// An lmcacheServer is LMCache's multiprocess server, seen through its HTTP side.
type lmcacheServer struct {
	base string
	http *http.Client
}

func (l lmcacheServer) blockSize(ctx context.Context) (int, error) {
	s, err := readStatus(ctx, l.http, l.base)
	return s.ChunkSize, err
}

func (l lmcacheServer) busy(ctx context.Context) (string, error) {
	s, err := readStatus(ctx, l.http, l.base)
	if err != nil || s.Storage.quiet() {
		return "", err
	}
	return fmt.Sprintf("the cache server's status is %+v", *s.Storage), nil
}

// clear has nothing to do: the engine's reset reaches this server.
func (l lmcacheServer) clear(context.Context) error { return nil }

// A status is the part of LMCache's GET /status that says whether it is quiet.
// Source: observed on LMCache 0.5.6.
type status struct {
	ChunkSize int             `json:"chunk_size"`
	Storage   *storageManager `json:"storage_manager"`
}

type storageManager struct {
	Store struct {
		Pending  int `json:"pending_keys_count"`
		InFlight int `json:"in_flight_task_count"`
	} `json:"store_controller"`
	Prefetch struct {
		Submission int `json:"submission_queue_size"`
		Pending    int `json:"pending_queue_size"`
		InFlight   int `json:"in_flight_request_count"`
		Lookup     int `json:"lookup_phase_count"`
		Load       int `json:"load_phase_count"`
	} `json:"prefetch_controller"`
}

func (m storageManager) quiet() bool { return m == storageManager{} }

// readStatus fails where the server does not answer as expected: unreachable
// is not quiet.
func readStatus(ctx context.Context, client *http.Client, base string) (status, error) {
	var s status
	if err := getStatus(ctx, client, base, &s); err != nil {
		return s, err
	}
	if s.Storage == nil {
		return s, fmt.Errorf("reading the cache server's status: GET %s/status has no storage_manager", base)
	}
	return s, nil
}

func getStatus(ctx context.Context, client *http.Client, base string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/status", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("reading the cache server's status: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("reading the cache server's status: GET %s/status: %s", base, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the cache server's status: %w", err)
	}
	return nil
}

// withStatus adds LMCache's status page to the snapshots of its counters:
// releases without token counters may have them there.
func withStatus(b backend, counters row.Probe) row.Probe {
	if l, ok := b.(lmcacheServer); ok {
		return statusProbe{Probe: counters, server: l}
	}
	return counters
}

type statusProbe struct {
	row.Probe
	server lmcacheServer
}

// Snapshot fails where the status cannot be read: what is unreachable is not
// quiet, and no witness.
func (p statusProbe) Snapshot(ctx context.Context) (row.Snapshot, error) {
	snapshot, err := p.Probe.Snapshot(ctx)
	if err != nil {
		return snapshot, err
	}
	err = getStatus(ctx, p.server.http, p.server.base, &snapshot.Status)
	return snapshot, err
}
