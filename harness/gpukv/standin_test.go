package gpukv

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda"
	"github.com/kvproof/kvproof/cuda/standin"
	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/mini/lmcache"
	"github.com/kvproof/kvproof/harness/mini/lmcache/gpu"
)

var mustNotSkip = flag.Bool("require", os.Getenv("KVPROOF_REQUIRE") != "", "fail where a test would skip for want of a driver or a tool")

// missing skips a test for want of something, or fails it under -require.
func missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if *mustNotSkip {
		tb.Fatalf("required, but "+format, args...)
	}
	tb.Skipf(format, args...)
}

// serverVariable makes the test binary a cache server in a process of its own: a
// handle cannot be opened by the process that exported it.
const serverVariable = "KVPROOF_GPUKV_SERVER"

// A served is what that process serves.
type served struct {
	Library string // of the driver
	StandIn bool   // that it is the stand-in's
	Chunk   int
	Faults  []lmcache.Fault
	Held    bool // copies of a retrieve are carried out only when a line comes in
}

var standInDir string

func TestMain(m *testing.M) {
	if text := os.Getenv(serverVariable); text != "" {
		if err := serve(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "cache server:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if standInDir != "" {
		if err := os.RemoveAll(standInDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

var loadStandIn = sync.OnceValues(func() (*standin.Driver, error) {
	var err error
	if standInDir, err = os.MkdirTemp("", "kvproof-standin-"); err != nil {
		return nil, err
	}
	library, err := standin.Build(standInDir)
	if err != nil {
		return nil, err
	}
	return standin.Connect(library)
})

// useStandIn loads the stand-in and checks at the end of the test that nothing
// was left behind.
func useStandIn(t *testing.T) (*standin.Driver, *cuda.Driver) {
	t.Helper()
	s, err := loadStandIn()
	if errors.Is(err, standin.ErrNoCompiler) {
		missing(t, "%v", err)
	}
	require.NoError(t, err)
	d, err := cuda.LoadLibrary(s.Library)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Revive()
		require.Empty(t, s.Left())
	})
	return s, d
}

// serve is the cache server's process. It says where it is, and ends with its
// input.
func serve(text string, in io.Reader, out io.Writer) (err error) {
	var config served
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return err
	}
	if config.StandIn {
		s, failed := standin.Connect(config.Library)
		if failed != nil {
			return failed
		}
		defer func() {
			if left := s.Left(); left != "" && err == nil {
				err = errors.New(left)
			}
		}()
	}
	driver, err := cuda.LoadLibrary(config.Library)
	if err != nil {
		return err
	}
	lines, ended := make(chan struct{}, 1), make(chan struct{})
	go func() { // ends with the input
		defer close(ended)
		defer close(lines)
		for scanner := bufio.NewScanner(in); scanner.Scan(); {
			lines <- struct{}{}
		}
	}()
	devices := gpu.New(driver)
	if config.Held {
		devices.Finish = func(wait func()) {
			<-lines
			wait()
		}
	}
	ctx := context.Background()
	s, err := lmcache.Start(ctx, lmcache.Config{
		Chunk: config.Chunk, HTTPAddr: "127.0.0.1:0", GPU: devices, Faults: config.Faults,
		TransferWorkers: 4, Workers: 4, L1Bytes: 256 << 20, Log: os.Stderr,
	})
	if err != nil {
		return err
	}
	err = json.NewEncoder(out).Encode(lmcmp.Endpoints{RPC: s.Endpoint(), HTTP: s.URL()})
	<-ended
	return errors.Join(err, s.Close(ctx))
}

// startServer runs a cache server in another process, which ends with the test,
// and must end well. Send writes a line to it.
func startServer(t *testing.T, config served) (server *lmcmp.Server, send func()) {
	t.Helper()
	text, err := json.Marshal(config)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Env = append(os.Environ(), serverVariable+"="+string(text))
	var log strings.Builder
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, stdin.Close())
		require.NoError(t, cmd.Wait(), "%s", &log)
		if t.Failed() {
			t.Logf("log of the cache server:\n%s", &log)
		}
	})
	var endpoints lmcmp.Endpoints
	require.NoError(t, json.NewDecoder(stdout).Decode(&endpoints))
	server, err = lmcmp.Discover(t.Context(), endpoints, "")
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return server, func() {
		_, err := io.WriteString(stdin, "go\n")
		require.NoError(t, err)
	}
}
