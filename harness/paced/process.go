package paced

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Variable is the environment variable that makes a program which calls Main
// this server: "TTFT,ITL" as durations.
const Variable = "KVPROOF_PACED"

// Main serves where Variable asks for it, until standard input ends, and
// reports whether it did. It says its URL on standard output first.
func Main() (served bool, err error) {
	text, ok := os.LookupEnv(Variable)
	if !ok {
		return false, nil
	}
	ttft, itl, _ := strings.Cut(text, ",")
	var c Config
	if c.TTFT, err = time.ParseDuration(ttft); err != nil {
		return true, fmt.Errorf("%s=%s: %w", Variable, text, err)
	}
	if c.ITL, err = time.ParseDuration(itl); err != nil {
		return true, fmt.Errorf("%s=%s: %w", Variable, text, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with standard input, which ends with the parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return true, Serve(ctx, "127.0.0.1:0", c, func(url string) { fmt.Println(url) })
}

// Serve serves on an address until ctx ends, and calls ready with its URL.
func Serve(ctx context.Context, addr string, c Config, ready func(url string)) error {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", addr, err)
	}
	server := &http.Server{Handler: New(c)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	ready("http://" + listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", addr, err)
	}
	return nil
}

// A Process is a server in a process of its own.
type Process struct {
	URL   string
	cmd   *exec.Cmd
	stdin io.Closer
}

// Start runs this program again as a server; it must call Main before anything
// else. The server ends with Stop, or with this process.
func Start(c Config) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting a paced server: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%v,%v", Variable, c.TTFT, c.ITL))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a paced server: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a paced server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a paced server: %w", err)
	}
	p := &Process{cmd: cmd, stdin: stdin}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a paced server: it ended before it said its address: %w", err), p.Stop())
	}
	p.URL = strings.TrimSpace(url)
	return p, nil
}

// Stop ends the server and waits for it.
func (p *Process) Stop() error {
	_ = p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("stopping the paced server: %w", err)
	}
	return nil
}

// Truth is what the server did since it last forgot.
func (p *Process) Truth(ctx context.Context) (truth Truth, err error) {
	body, err := p.ask(ctx, http.MethodGet, "/truth")
	if err != nil {
		return truth, err
	}
	if err := json.Unmarshal(body, &truth); err != nil {
		return truth, fmt.Errorf("reading the truth of the paced server: %w", err)
	}
	return truth, nil
}

// Forget begins the truth anew.
func (p *Process) Forget(ctx context.Context) error {
	_, err := p.ask(ctx, http.MethodDelete, "/truth")
	return err
}

// Begun says whether a request has come since the server last forgot.
func (p *Process) Begun(ctx context.Context) (bool, error) {
	body, err := p.ask(ctx, http.MethodGet, "/begun")
	return string(body) == "true", err
}

func (p *Process) ask(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.URL+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the paced server for %s: %w", path, err)
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}
