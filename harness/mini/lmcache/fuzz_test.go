package lmcache

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// FuzzRequests sends the server what a client may send: it goes on serving
// others, whatever it is. The inputs are frames, each after its length.
func FuzzRequests(f *testing.F) {
	s, err := Start(f.Context(), Config{Chunk: chunk, L1Bytes: 1 << 16, NoShm: true, Log: io.Discard})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, s.Close(f.Context())) })
	paths, err := filepath.Glob(recordings + "/lmcache-0.5.6/*.json")
	require.NoError(f, err)
	for _, path := range paths {
		for _, e := range readRecording(f, path).Exchanges {
			f.Add(join(renamed(f, e.Request, nil)))
		}
	}
	f.Add(join([][]byte{{0}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		conn, err := wire.Dial(t.Context(), s.Endpoint())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		if frames := split(data); len(frames) > 0 {
			require.NoError(t, conn.Send(frames))
		}
		ask, err := s.dialect.EncodeRequest(1<<50, &wire.EndSession{RequestID: "last"}) // behind it in the queue
		require.NoError(t, err)
		require.NoError(t, conn.Send(ask))
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
		for {
			got, err := conn.Receive()
			require.NoError(t, err)
			if bytes.Equal(got[0], ask[0]) {
				return
			}
		}
	})
}

func join(frames [][]byte) []byte {
	var out []byte
	for _, f := range frames {
		out = append(append(out, byte(len(f)>>8), byte(len(f))), f...)
	}
	return out
}

func split(data []byte) (frames [][]byte) {
	for len(data) >= 2 && len(frames) < 16 {
		n := min(int(data[0])<<8|int(data[1]), len(data)-2)
		frames, data = append(frames, data[2:2+n]), data[2+n:]
	}
	return frames
}

func TestDroppedRequestsAreLogged(t *testing.T) {
	log := &lines{t: t}
	s := serve(t, Config{Log: log, Transfer: LMCacheDriven})
	c := connect(t, s, 1)
	conn, err := wire.Dial(t.Context(), s.Endpoint())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, conn.Send([][]byte{{0}}))
	require.NoError(t, conn.Send([][]byte{{0}, {99}}))
	c.ignored(&wire.RegisterEngineDriven{Context: mla})
	k := key("r", prompt(1, 8)...)
	k.End = 6
	c.ignored(&wire.Store{Key: k, Instance: 1, Blocks: [][]int{{1}}})
	for _, want := range []string{
		"dropped a message (request ", "a message of 1 frames", "LMCache 0.5.6 has no operation 99",
		"this server is lmcache_driven only", "tokens [0, 6): both must be multiples of the chunk of 4",
	} {
		require.Eventually(t, func() bool { return strings.Contains(log.String(), want) }, patience, time.Millisecond, "%s\nin\n%s", want, log)
	}
	require.Contains(t, log.String(), fmt.Sprintf("dropped %s", wire.OpStore))
}
