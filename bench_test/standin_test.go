package bench_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
	"github.com/kvproof/kvproof/harness/mini/model"
)

// Stand-ins for vllm, lmcache and DaseR's python: this binary under their names.
// They note with what they were started, and serve the miniature stack as those
// arguments say.

// standInVariable has the directory in which stand-ins leave their notes.
const standInVariable = "STANDIN_NOTES"

// A note is with what a stand-in was started.
type note struct {
	Argv, Env []string
	DaseR     string            // where the engine's process serves DaseR's HTTP
	Lies      map[string]string // flags that it takes for others, as a server does that ignores them
}

// playStandIn serves as the program that this binary is called as, until TERM;
// false: it is called as itself.
func playStandIn(dir string) bool {
	play, ok := map[string]func(string, note) error{"vllm": playVLLM, "lmcache": playLMCache, "python": playPython}[filepath.Base(os.Args[0])]
	if !ok {
		return false
	}
	n := note{Argv: os.Args, Env: os.Environ()}
	if text, err := os.ReadFile(filepath.Join(dir, "lies.json")); err == nil {
		err = json.Unmarshal(text, &n.Lies)
		if err != nil {
			panic(err)
		}
	}
	if err := play(dir, n); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return true
}

func (n note) leave(dir, name string) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".json"), text, 0o600)
}

func readNote(dir, name string) (n note, err error) {
	text, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	return n, err
}

// flag is the value behind a flag; a program of ours that it is not given to
// cannot serve.
func (n note) flag(name string) string {
	if lie, ok := n.Lies[name]; ok {
		return lie
	}
	i := slices.Index(n.Argv, name)
	if i < 0 || i+1 == len(n.Argv) {
		panic(fmt.Sprintf("%s is not among %q", name, n.Argv))
	}
	return n.Argv[i+1]
}

func (n note) number(name string) int {
	v, err := strconv.Atoi(n.flag(name))
	if err != nil {
		panic(err)
	}
	return v
}

// playVLLM is an engine with the cache that its arguments give it.
func playVLLM(dir string, n note) error {
	config := mini.Config{
		Row: mini.Baseline, Addr: "127.0.0.1:" + n.flag("--port"), BlockSize: n.number("--block-size"),
		Model: model.Nano(), ModelName: n.flag("--served-model-name"), MaxSeqs: n.number("--max-num-seqs"), Prefix: []int32{}, Log: os.Stdout,
	}
	config.Model.Vocab, config.Model.Context = model.Mini().Vocab, n.number("--max-model-len")
	switch {
	case slices.Contains(n.Argv, "--kv-transfer-config"):
		var transfer struct {
			Connector string `json:"kv_connector"`
			Extra     struct {
				Port int    `json:"lmcache.mp.port"`
				Mode string `json:"cache_reuse_mode"`
			} `json:"kv_connector_extra_config"`
		}
		if err := json.Unmarshal([]byte(n.flag("--kv-transfer-config")), &transfer); err != nil {
			return err
		}
		switch transfer.Connector {
		case "LMCacheMPConnector":
			cache, err := readNote(dir, "lmcache") // the connector itself needs no HTTP
			if err != nil {
				return err
			}
			config.LMCacheAddr = fmt.Sprintf("tcp://127.0.0.1:%d", transfer.Extra.Port)
			config.LMCacheHTTP = "http://127.0.0.1:" + cache.flag("--http-port")
			config.Row = mini.LMCache
		case "DaserConnector":
			config.Row = "daser-" + transfer.Extra.Mode
		case "ExampleConnector": // for prompts that share nothing they hit the same
			config.Row = mini.LMCache
		}
	case slices.Contains(n.Argv, "--enable-prefix-caching"):
		config.Row = mini.EngineCache
	}
	stack, err := mini.Start(context.Background(), config)
	if err != nil {
		return err
	}
	n.DaseR = stack.DaserURL()
	if err := n.leave(dir, "engine"); err != nil {
		return err
	}
	<-terminated()
	return stack.Close(context.Background())
}

func playLMCache(dir string, n note) error {
	server, err := lmcache.Start(context.Background(), lmcache.Config{
		Addr: "127.0.0.1:" + n.flag("--port"), HTTPAddr: "127.0.0.1:" + n.flag("--http-port"), Chunk: n.number("--chunk-size"),
		Transfer: n.flag("--supported-transfer-mode"), ShmName: n.flag("--shm-name"), L1Bytes: 64 << 20, Staging: 64 << 20, NullBlock: lmcache.NoNullBlock, Log: os.Stdout,
	})
	if err != nil {
		return err
	}
	if err := n.leave(dir, "lmcache"); err != nil {
		return err
	}
	<-terminated()
	return server.Close(context.Background())
}

// playPython is DaseR's server, whose cache lives in the engine's process here;
// of llama.cpp's script it only notes the start.
func playPython(dir string, n note) error {
	if !slices.Contains(n.Argv, "daser.server") {
		if err := n.leave(dir, "engine"); err != nil {
			return err
		}
		return fmt.Errorf("there is no stand-in for %q", n.Argv)
	}
	engine, err := readNote(dir, "engine")
	if err != nil {
		return fmt.Errorf("DaseR needs an engine that is up: %w", err)
	}
	target, err := url.Parse(engine.DaseR)
	if err != nil {
		return err
	}
	ipc, err := net.Listen("unix", n.flag("--socket-path"))
	if err != nil {
		return err
	}
	var polls atomic.Int64
	go serveIPC(ipc, n, engine, &polls)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	server := &http.Server{Addr: n.flag("--host") + ":" + n.flag("--port"), Handler: wholeBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" { // without the block size, as DaseR's; degraded at first, and 200 all the same
			fmt.Fprintf(w, `{"status":"ok","vllm":%v}`, polls.Add(1) > degradedPolls)
			return
		}
		if n.Lies["documents"] == "texts" && r.URL.Path == "/documents" { // as DaseR's own
			http.Error(w, `{"detail":[{"type":"missing","loc":["body","text"],"msg":"Field required"}]}`, http.StatusUnprocessableEntity)
			return
		}
		proxy.ServeHTTP(w, r)
	}))}
	go func() { _ = server.ListenAndServe() }()
	if err := n.leave(dir, "daser"); err != nil {
		return err
	}
	<-terminated()
	return server.Close()
}

// degradedPolls is how often DaseR's health says that the engine is down.
const degradedPolls = 2

// serveIPC answers get_runtime_config, once its health says that all is well.
func serveIPC(ipc net.Listener, n, engine note, polls *atomic.Int64) {
	gib := strings.TrimSuffix(n.flag("--l1-size"), "gib")
	l1, err := strconv.Atoi(gib)
	if err != nil {
		panic(err)
	}
	for {
		conn, err := ipc.Accept()
		if err != nil {
			return
		}
		answer, err := wire.Encode(map[string]any{"runtime_config": map[string]any{
			"block_tokens": n.number("--block-tokens"), "slot_size": 1 << 20, "model_id": engine.flag("--served-model-name"), "transfer_mode": n.flag("--transfer-mode"),
			"l1_size_bytes": int64(l1) << 30, "l2_size_bytes": 0, "skip_l2": slices.Contains(n.Argv, "--skip-l2") && n.Lies["--skip-l2"] == "", "store_path": n.flag("--store-dir") + "/daser.store",
		}})
		if err != nil {
			panic(err)
		}
		var head [4]byte
		if _, err := io.ReadFull(conn, head[:]); err == nil && polls.Load() > degradedPolls {
			request := make([]byte, binary.BigEndian.Uint32(head[:]))
			if _, err := io.ReadFull(conn, request); err == nil && bytes.Contains(request, []byte("get_runtime_config")) {
				_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...))
			}
		}
		conn.Close()
	}
}

func terminated() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	return c
}
