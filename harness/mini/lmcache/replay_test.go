package lmcache

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// recordings are what clients and servers of three releases said to each
// other; see package wire.
const recordings = "../../lmcmp/wire/testdata"

type exchange struct {
	Op      string   `json:"op"`
	Request []string `json:"request_frames"`
	Reply   []string `json:"reply_frames"` // null: never answered
}

type recording struct {
	Version   string     `json:"version"`
	Exchanges []exchange `json:"exchanges"`
}

func readRecording(t testing.TB, path string) recording {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var r recording
	require.NoError(t, json.Unmarshal(data, &r))
	require.NotEmpty(t, r.Exchanges)
	return r
}

var (
	segmentNames = regexp.MustCompile(`/lmcache_kv_[A-Za-z0-9_]+`)
	poolName     = regexp.MustCompile(`lmcache_l1_pool_[A-Za-z0-9_.]+`)
)

// renamed are the frames with shared memory of this test in the place of what
// was there, of names as long as those, so that lengths stay.
func renamed(t testing.TB, frames []string, names map[string]string) [][]byte {
	t.Helper()
	var out [][]byte
	for _, f := range frames {
		b, err := hex.DecodeString(f)
		require.NoError(t, err)
		for old, now := range names {
			b = bytes.ReplaceAll(b, []byte(old), []byte(now))
		}
		out = append(out, b)
	}
	return out
}

// sameLength is a fresh name as long as another.
func sameLength(prefix, name string) string {
	return prefix + strings.ToLower(rand.Text() + rand.Text() + rand.Text())[:len(name)-len(prefix)]
}

// What recorded servers answered to recorded clients, this one answers too,
// byte for byte, and what they did not answer it does not.
func TestRecordedExchanges(t *testing.T) {
	paths, err := filepath.Glob(recordings + "/lmcache-*/*.json")
	require.NoError(t, err)
	require.Len(t, paths, 7)
	for _, path := range paths {
		t.Run(strings.TrimPrefix(path, recordings+"/"), func(t *testing.T) { replay(t, readRecording(t, path)) })
	}
}

func replay(t *testing.T, r recording) {
	names := map[string]string{}
	for _, e := range r.Exchanges {
		for _, f := range append(renamed(t, e.Request, nil), renamed(t, e.Reply, nil)...) {
			for _, name := range segmentNames.FindAllString(string(f), -1) {
				if names[name] == "" {
					names[name] = sameLength("/"+shm.Prefix, name)
					segment, err := shm.CreateNamed(names[name], 1<<16)
					require.NoError(t, err)
					defer func() { require.NoError(t, segment.Close()) }()
				}
			}
			if name := poolName.FindString(string(f)); name != "" && names[name] == "" {
				names[name] = sameLength(poolPrefix, name)
			}
		}
	}
	pool := ""
	for old, now := range names {
		if strings.HasPrefix(old, poolPrefix) {
			pool = strings.TrimPrefix(now, poolPrefix)
		}
	}
	s, err := Start(t.Context(), Config{Version: r.Version, Chunk: chunk, L1Bytes: poolSize(t, r), ShmName: pool, Log: &lines{t: t}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(t.Context())) }()
	var conn *wire.Conn
	defer func() { require.NoError(t, conn.Close()) }()
	hitsCold := firstHits(t, s, r)
	for i, e := range r.Exchanges {
		request, want := renamed(t, e.Request, names), renamed(t, e.Reply, names)
		if conn == nil || bytes.Equal(request[0], []byte{0}) { // another client
			if conn != nil {
				require.NoError(t, conn.Close())
			}
			conn, err = wire.Dial(t.Context(), s.Endpoint())
			require.NoError(t, err)
		}
		received, err := s.dialect.DecodeRequest(request)
		if lookup, ok := received.Request.(*wire.Lookup); ok && err == nil {
			waitVisible(t, s)
			if hitsCold { // an earlier run of that client had stored its first prompt
				seed(t, s, lookup.Key)
				hitsCold = false
			}
		}
		require.NoError(t, conn.Send(request))
		if e.Reply == nil {
			continue
		}
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
		got, err := conn.Receive()
		require.NoError(t, err, "exchange %d, %s", i, e.Op)
		if e.Op == "get_experimental" {
			require.Len(t, got, 3)
			continue // nothing experimental is offered here
		}
		if received.Request != nil && len(want) > 2 {
			want[2], got[2] = relative(t, received.Request, want[2]), relative(t, received.Request, got[2])
		}
		require.Equal(t, hexes(want), hexes(got), "exchange %d, %s", i, e.Op)
	}
}

// poolSize is the size of L1 that the recorded server had.
func poolSize(t *testing.T, r recording) int64 {
	t.Helper()
	for _, e := range r.Exchanges {
		var p wire.Pool
		if frames := renamed(t, e.Reply, nil); len(frames) == 3 && wire.Decode(frames[2], &p) == nil && p.Size > 0 {
			return int64(p.Size)
		}
	}
	return 1 << 20
}

// relative counts the places of slots from the first one: where that is
// depends on what the recorded server had done before.
func relative(t *testing.T, r wire.Request, result []byte) []byte {
	t.Helper()
	var answer any
	var slots []wire.Slot
	switch r.(type) {
	case *wire.PrepareStore:
		var p wire.PreparedStore
		require.NoError(t, wire.Decode(result, &p))
		answer, slots = &p, p.Context.Slots
	case *wire.PrepareRetrieve:
		var p wire.PreparedRetrieve
		require.NoError(t, wire.Decode(result, &p))
		answer, slots = &p, p.Context.Slots
	default:
		return result
	}
	for i := range slots {
		slots[len(slots)-1-i].Offset -= slots[0].Offset
	}
	again, err := wire.Encode(answer)
	require.NoError(t, err)
	return again
}

func hexes(frames [][]byte) []string {
	var out []string
	for _, f := range frames {
		out = append(out, hex.EncodeToString(f))
	}
	return out
}

func waitVisible(t *testing.T, s *Server) {
	t.Helper()
	require.Eventually(t, func() bool {
		pending, inFlight := s.visible.state()
		return pending+inFlight == 0
	}, patience, time.Millisecond)
}

// firstHits says whether the first lookup of a recording found something.
func firstHits(t *testing.T, s *Server, r recording) bool {
	t.Helper()
	for _, e := range r.Exchanges {
		frames := renamed(t, e.Request, nil)
		received, err := s.dialect.DecodeRequest(frames)
		if err != nil || len(e.Reply) < 3 {
			continue
		}
		switch received.Request.(type) {
		case *wire.QueryPrefetchStatus, *wire.WaitPrefetchStatus:
			return e.Reply[2] != "00"
		}
	}
	return false
}

// seed stores a prompt as a client of the recordings would have.
func seed(t *testing.T, s *Server, k wire.Key) {
	t.Helper()
	c := connect(t, s, 1<<40)
	c.registerEngine(s, wire.EngineContext{BlockSize: 4, Layers: 2, Hidden: 8, DType: "float16"})
	k.Worker, k.RequestID = 0, "seed"
	k.End = len(k.Tokens) / chunk * chunk
	var data [][]byte
	for i := range k.End / chunk {
		data = append(data, chunkData(byte(i), 2*2*chunk*8*2))
	}
	c.write(k, data...)
}
