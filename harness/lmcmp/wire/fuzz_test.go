package wire

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRequest feeds the reader of requests with a payload of every recorded
// operation: it may refuse it, and what it accepts it can write again.
func FuzzRequest(f *testing.F) {
	paths, err := filepath.Glob("testdata/lmcache-*/*.json")
	require.NoError(f, err)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(f, err)
		var r recording
		require.NoError(f, json.Unmarshal(data, &r))
		for _, e := range r.Exchanges {
			if len(e.Request) < 3 {
				continue
			}
			op, err := hex.DecodeString(e.Request[1])
			require.NoError(f, err)
			payload, err := hex.DecodeString(e.Request[min(3, len(e.Request)-1)])
			require.NoError(f, err)
			f.Add(r.Version, op, payload)
		}
	}
	f.Fuzz(func(t *testing.T, version string, op, payload []byte) {
		d, err := ForVersion(version)
		if err != nil {
			return
		}
		name, err := d.decodeOp(op)
		if err != nil {
			return
		}
		request, err := NewRequest(name)
		require.NoError(t, err)
		for _, p := range request.payloads(d) {
			if Decode(payload, p) == nil {
				again, err := Encode(p)
				require.NoError(t, err)
				require.NoError(t, Decode(again, p), "what was written: %x", again)
			}
		}
	})
}

// FuzzReceive feeds a connection with bytes after the handshake.
func FuzzReceive(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, flagMore, []byte{0}), 0, []byte{21}))
	f.Add(appendFrame(nil, flagCommand, []byte("\x04PING\x00\x00context")))
	f.Add(appendFrame(nil, 0, make([]byte, 300)))
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Write(data)
			_ = theirs.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		c := &Conn{conn: ours}
		for {
			frames, err := c.Receive()
			if err != nil {
				break
			}
			require.NotEmpty(t, frames)
		}
		require.NoError(t, ours.Close())
	})
}
