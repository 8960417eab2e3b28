package recipe

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// daserConfig is what DaseR says it runs with. Source: get_runtime_config in
// DaseR's sources.
type daserConfig struct {
	BlockTokens int    `msgpack:"block_tokens"`
	SlotSize    int64  `msgpack:"slot_size"`
	Model       string `msgpack:"model_id"`
	Transfer    string `msgpack:"transfer_mode"`
	L1Bytes     int64  `msgpack:"l1_size_bytes"`
	L2Bytes     int64  `msgpack:"l2_size_bytes"`
	SkipL2      bool   `msgpack:"skip_l2"`
}

// maxConfig bounds the answer: a few dozen fields.
const maxConfig = 1 << 20

// readDaserConfig asks DaseR over its IPC: documents of msgpack, each behind its
// length in four bytes, big-endian, on a Unix socket.
func readDaserConfig(ctx context.Context, socket string) (config daserConfig, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTimeout, fmt.Errorf("no answer within %s", lookTimeout))
	defer cancel()
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil { // the connection was closed for it
			err = cause
		}
		if err != nil {
			err = fmt.Errorf("asking DaseR for its runtime config at %s: %w", socket, err)
		}
	}()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return config, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	request, err := wire.Encode(map[string]string{"op": "get_runtime_config"})
	if err != nil {
		return config, err
	}
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request...)); err != nil {
		return config, err
	}
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return config, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxConfig {
		return config, fmt.Errorf("an answer of %d bytes is none", size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(conn, body); err != nil {
		return config, err
	}
	var answer struct {
		Error  string       `msgpack:"error"`
		Config *daserConfig `msgpack:"runtime_config"`
	}
	switch err := wire.Decode(body, &answer); {
	case err != nil:
		return config, err
	case answer.Error != "":
		return config, errors.New(answer.Error)
	case answer.Config == nil || answer.Config.BlockTokens == 0:
		return config, errors.New("the answer has no runtime_config with block_tokens")
	}
	return *answer.Config, nil
}

// differs says what DaseR runs with that was not asked for; empty: nothing.
func (c daserConfig) differs(model string, l1 int64) string {
	switch {
	case c.Model != model:
		return fmt.Sprintf("DaseR keeps KV of the model %q, the engine serves %q", c.Model, model)
	case !c.SkipL2:
		return fmt.Sprintf("DaseR has a second tier of %d bytes, which nobody asked for", c.L2Bytes)
	case l1-c.L1Bytes >= max(c.SlotSize, 1): // it rounds down to whole slots
		return fmt.Sprintf("DaseR has a first tier of %d bytes, asked for were %d", c.L1Bytes, l1)
	}
	return ""
}

// FindDaseR is where the executables lie with which DaseR and its vLLM run: in
// a virtual environment, or in that of a checkout.
func FindDaseR(dir string) (string, error) {
	for _, below := range []string{"bin", ".venv/bin", "venv/bin"} {
		bin, err := filepath.Abs(filepath.Join(dir, below))
		if err != nil {
			return "", err
		}
		if info, err := os.Stat(filepath.Join(bin, "python")); err == nil && info.Mode()&0o111 != 0 {
			return bin, nil
		}
	}
	return "", errors.New("want a virtual environment in which vLLM and a checkout of DaseR are installed (pip install -e), or a checkout with one as .venv or venv; there is no bin/python")
}

// isTrue is ready when a URL answers 200 and a field of its JSON is true. DaseR
// answers 200 even while the engine is down.
func isTrue(url, field string) launch.Check {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := direct.RoundTrip(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", url, response.Status)
		}
		var answer map[string]any
		if err := json.NewDecoder(io.LimitReader(response.Body, maxConfig)).Decode(&answer); err != nil {
			return fmt.Errorf("GET %s: %w", url, err)
		}
		if answer[field] != true {
			return fmt.Errorf("GET %s: %s is %v", url, field, answer[field])
		}
		return nil
	}
}
