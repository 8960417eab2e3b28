package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// limit is how long a process may live in a test; it needs a second.
const limit = time.Minute

// build makes the binary that people run.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "kvproof")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

// A served is a running kvproof mini.
type served struct {
	*exec.Cmd
	lines map[string]string // what it announced, by the first word
	errs  *bytes.Buffer
}

func serve(t *testing.T, binary string, args ...string) *served {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	args = append([]string{"mini", "-model=nano", "-addr=127.0.0.1:0"}, args...)
	s := &served{Cmd: exec.CommandContext(ctx, binary, args...), lines: map[string]string{}, errs: &bytes.Buffer{}}
	s.start(t)
	return s
}

// start runs the command until it has announced itself.
func (s *served) start(t *testing.T) {
	t.Helper()
	s.Stderr = s.errs
	out, err := s.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.Start())
	t.Cleanup(func() { _ = s.Process.Kill() })
	for lines := bufio.NewScanner(out); s.lines["try"] == ""; {
		require.True(t, lines.Scan(), "it ended before it was ready")
		name, value, _ := strings.Cut(lines.Text(), " ")
		s.lines[name] = strings.TrimSpace(value)
	}
}

// stop signals and returns the exit code.
func (s *served) stop(t *testing.T, signal os.Signal) int {
	t.Helper()
	require.NoError(t, s.Process.Signal(signal))
	_ = s.Wait()
	return s.ProcessState.ExitCode()
}

func requireFree(t *testing.T, url string) {
	t.Helper()
	listener, err := net.Listen("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err, "the port is still taken")
	require.NoError(t, listener.Close())
}

func read(t *testing.T, response *http.Response, err error) (int, string) {
	t.Helper()
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(body)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	return read(t, response, err)
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	return read(t, response, err)
}

const completion = `{"model":"nano","prompt":[8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25],"max_tokens":8,"temperature":0,"ignore_eos":true,"logprobs":1}`

func TestMiniServesUntilASignal(t *testing.T) {
	binary := build(t)
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(signal.String(), func(t *testing.T) {
			s := serve(t, binary, "-row=lmcache", "-blocksize=16", "-unsafe")
			engine, store := s.lines["engine"], s.lines["store"]
			require.Contains(t, s.lines["row"], "lmcache, block size 16, model nano")

			code, cold := post(t, engine+"/v1/completions", completion)
			require.Equal(t, http.StatusOK, code)
			require.Contains(t, cold, `"cached_tokens":0`)
			require.Eventually(t, func() bool {
				_, status := get(t, store+"/status")
				return strings.Contains(status, `"total_object_count":1`)
			}, limit, time.Millisecond)
			_, warm := post(t, engine+"/v1/completions", completion)
			require.Contains(t, warm, `"cached_tokens":16`)
			require.Equal(t, choices(cold), choices(warm))

			code, _ = post(t, store+"/debug/flip?chunk=0&offset=7", "")
			require.Equal(t, http.StatusOK, code)
			_, damaged := post(t, engine+"/v1/completions", completion)
			require.NotEqual(t, choices(cold), choices(damaged))

			require.Equal(t, exitOK, s.stop(t, signal), s.errs.String())
			requireFree(t, engine)
			requireFree(t, store)
		})
	}

	t.Run("in mid-stream", func(t *testing.T) {
		s := serve(t, binary, "-row=engine-cache")
		require.Empty(t, s.lines["store"])
		body := `{"model":"nano","prompt":[8],"max_tokens":600,"ignore_eos":true,"stream":true}`
		response, err := http.Post(s.lines["engine"]+"/v1/completions", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		stream := bufio.NewReader(response.Body)
		_, err = stream.ReadString('\n')
		require.NoError(t, err)
		require.NoError(t, s.Process.Signal(syscall.SIGTERM))
		rest, err := io.ReadAll(stream)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"), "the request came to its end")
		require.NoError(t, response.Body.Close())
		require.NoError(t, s.Wait())
	})
}

// choices is the part of an answer that does not depend on when it was given.
func choices(answer string) string {
	_, rest, _ := strings.Cut(answer, `"choices":`)
	part, _, _ := strings.Cut(rest, `"usage"`)
	return part
}

func TestMiniWithFaults(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	out, ready := io.Pipe()
	code := make(chan int)
	var errs bytes.Buffer
	go func() {
		code <- run(ctx, []string{"mini", "-model=nano", "-addr=127.0.0.1:0", "-row=lmcache", "-fault=reset-false,nan"}, ready, &errs)
		_ = ready.Close()
	}()
	var engine, store string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "engine  %s", &engine)
		_, _ = fmt.Sscanf(lines.Text(), "store   %s", &store)
		if name, faults, _ := strings.Cut(lines.Text(), "  "); name == "faults" {
			require.Equal(t, "reset-false, nan", faults)
		}
		if strings.HasPrefix(lines.Text(), "try") {
			break
		}
	}
	_, answer := post(t, engine+"/reset_prefix_cache", "")
	require.JSONEq(t, `{"success":false}`, answer)
	status, _ := post(t, store+"/debug/flip?chunk=0&offset=7", "")
	require.Equal(t, http.StatusForbidden, status, "without -unsafe")
	end()
	require.Equal(t, exitOK, <-code, errs.String())
	requireFree(t, engine)
}
