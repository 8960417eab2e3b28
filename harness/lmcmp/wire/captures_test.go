package wire

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An exchange is a recorded request and its reply: frames in hex, as the
// client sent and received them.
type exchange struct {
	Op      string   `json:"op"`
	Request []string `json:"request_frames"`
	Reply   []string `json:"reply_frames"` // null: never answered
}

type recording struct {
	Version   string     `json:"version"`
	Exchanges []exchange `json:"exchanges"`
}

func readRecording(t *testing.T, path string) recording {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var r recording
	require.NoError(t, json.Unmarshal(data, &r))
	require.NotEmpty(t, r.Exchanges)
	return r
}

func unhex(t *testing.T, frames []string) [][]byte {
	t.Helper()
	var out [][]byte
	for _, f := range frames {
		b, err := hex.DecodeString(f)
		require.NoError(t, err)
		out = append(out, b)
	}
	return out
}

// What upstream's own client sent, and what its servers answered, is read and
// written again to the same bytes, in all three dialects that were recorded.
func TestRecordedFramesAreWrittenAgain(t *testing.T) {
	paths, err := filepath.Glob("testdata/lmcache-*/upstream-*.json")
	require.NoError(t, err)
	require.Len(t, paths, 6)
	for _, path := range paths {
		t.Run(strings.TrimPrefix(path, "testdata/"), func(t *testing.T) {
			r := readRecording(t, path)
			d, err := ForVersion(r.Version)
			require.NoError(t, err)
			for _, e := range r.Exchanges {
				frames := unhex(t, e.Request)
				got, err := d.DecodeRequest(frames)
				require.NoError(t, err, "request %s", e.Op)
				var uid uint64
				require.NoError(t, Decode(got.UID, &uid))
				again, err := d.EncodeRequest(uid, got.Request)
				require.NoError(t, err)
				require.Equal(t, frames, again, "request %s", e.Op)
				requireReplyAgain(t, got, unhex(t, e.Reply))
			}
		})
	}
}

// requireReplyAgain decodes a reply and encodes it to the same bytes.
func requireReplyAgain(t *testing.T, request Received, frames [][]byte) {
	t.Helper()
	r, err := decodeReply(frames)
	require.NoError(t, err)
	result := NewResult(request.Request)
	if r.result == nil {
		again, err := request.Reply(nil)
		require.NoError(t, err)
		require.Equal(t, frames, again, "reply to %s", request.Request.Op())
		return
	}
	require.NotNil(t, result, "%s has no result, the reply has", request.Request.Op())
	require.NoError(t, Decode(r.result, result))
	again, err := request.Reply(result)
	require.NoError(t, err)
	require.Equal(t, frames, again, "reply to %s", request.Request.Op())
}

// A server of 0.5.6 answered no request that we refuse to read, and answered
// those that we read, but for the ones below: what it refused there was what
// the request said, not how.
func TestWhatAServerDropsIsAnError(t *testing.T) {
	r := readRecording(t, "testdata/lmcache-0.5.6/own-client-odd-inputs.json")
	d, err := ForVersion(r.Version)
	require.NoError(t, err)
	var dropped, read int
	meaning := map[string]bool{"store": true, "lookup": true, "register_kv_cache": true, "prepare_store": true}
	for i, e := range r.Exchanges {
		got, err := d.DecodeRequest(unhex(t, e.Request))
		if err != nil {
			require.Nil(t, e.Reply, "exchange %d, %s, was answered: %v", i, e.Op, err)
			dropped++
			continue
		}
		read++
		if e.Reply == nil {
			require.Contains(t, meaning, string(got.Request.Op()), "exchange %d was not answered", i)
			continue
		}
		requireReplyAgain(t, got, unhex(t, e.Reply))
	}
	require.Equal(t, 155, dropped+read)
	require.Greater(t, dropped, 15)
	require.Greater(t, read, 120)
}
