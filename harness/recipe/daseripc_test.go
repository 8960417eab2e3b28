package recipe

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// answering answers one request on a socket with bytes, and tells what it was
// asked.
func answering(t *testing.T, socket string, answer []byte) <-chan map[string]string {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	requests := make(chan map[string]string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var head [4]byte
		var request map[string]string
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(conn, body); err == nil && wire.Decode(body, &request) == nil {
			requests <- request
		}
		_, _ = conn.Write(answer)
	}()
	return requests
}

func framed(t *testing.T, v any) []byte {
	t.Helper()
	body, err := wire.Encode(v)
	require.NoError(t, err)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestDaserConfig(t *testing.T) {
	whole := map[string]any{"runtime_config": map[string]any{
		"block_tokens": 128, "slot_size": 18874368, "model_id": "qwen", "transfer_mode": "iouring", "l1_size_bytes": 1 << 34, "l2_size_bytes": 0, "skip_l2": true,
		"store_path": "/x", "something_newer": []int{1},
	}}
	socket := filepath.Join(t.TempDir(), "daser.sock")
	asked := answering(t, socket, framed(t, whole))
	config, err := readDaserConfig(t.Context(), socket)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"op": "get_runtime_config"}, <-asked)
	require.Equal(t, daserConfig{BlockTokens: 128, SlotSize: 18874368, Model: "qwen", Transfer: "iouring", L1Bytes: 1 << 34, SkipL2: true}, config)
	require.Empty(t, config.differs("qwen", 1<<34))
	require.Empty(t, config.differs("qwen", 1<<34+18874367), "whole slots")
	require.Contains(t, config.differs("llama", 1<<34), `KV of the model "qwen", the engine serves "llama"`)
	require.Contains(t, config.differs("qwen", 1<<35), "asked for were 34359738368")

	for _, c := range []struct {
		name   string
		answer []byte
		want   string
	}{
		{"an error", framed(t, map[string]string{"error": "unknown op: get_runtime_config"}), "unknown op"},
		{"something else", framed(t, map[string]bool{"ok": true}), "has no runtime_config with block_tokens"},
		{"no msgpack", []byte{0, 0, 0, 2, 0xc1, 0xc1}, "decoding"},
		{"cut off", framed(t, whole)[:20], "unexpected EOF"},
		{"nothing", nil, "EOF"},
		{"HTTP", []byte("HTTP/1.1 400 Bad Request"), "an answer of 1213486160 bytes is none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "daser.sock")
			answering(t, socket, c.answer)
			_, err := readDaserConfig(t.Context(), socket)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, socket)
		})
	}
}

func TestIsTrue(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   string
	}{
		{200, `{"status": "ok", "vllm": true}`, ""},
		{200, `{"status": "degraded", "vllm": false}`, "vllm is false"},
		{200, `{}`, "vllm is <nil>"},
		{200, `ok`, "invalid character"},
		{503, `{"vllm": true}`, "503 Service Unavailable"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		err := isTrue(server.URL, "vllm")(t.Context())
		server.Close()
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
	}
}
