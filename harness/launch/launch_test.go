package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func launcher(t *testing.T) *Launcher {
	t.Helper()
	l, err := New(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

func freePort(t *testing.T) int {
	t.Helper()
	ports, err := FreePorts(1)
	require.NoError(t, err)
	return ports[0]
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func TestStartAndStop(t *testing.T) {
	l, port := launcher(t), freePort(t)
	p := playing(t, "serve", strconv.Itoa(port))
	p.Ports, p.Ready = []int{port}, HTTP("http://"+address(port))
	t.Setenv("LAUNCH_ANSWER", "the parent's")
	p.Env = append(p.Env, "LAUNCH_ANSWER=its own")
	s, err := l.Start(t.Context(), p)
	require.NoError(t, err)

	response, err := http.Get("http://" + address(port))
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, "its own, SPT_NOENV=1", string(body))

	records, err := Records(l.dir)
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, s.PID(), records[0].PID)
	require.Equal(t, p.Argv, records[0].Argv)
	require.NoError(t, s.Err())

	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Stop(t.Context()))
	<-s.Exited()
	require.False(t, groupAlive(s.PID()))
	var died *DiedError
	require.ErrorAs(t, s.Err(), &died)
	require.Zero(t, died.Code, "it had the time to end as it wants")
	require.Equal(t, []string{"ending as asked"}, died.Lines)
	records, err = Records(l.dir)
	require.NoError(t, err)
	require.Empty(t, records)
}

func TestDeathIsReportedAtOnce(t *testing.T) {
	l := launcher(t)
	p := playing(t, "die")
	p.Timeout = time.Hour // a wait for it would not end
	p.Ready = TCP(address(freePort(t)))
	_, err := l.Start(t.Context(), p)
	var died *DiedError
	require.ErrorAs(t, err, &died)
	require.Equal(t, 3, died.Code)
	require.EqualError(t, err, "starting engine: engine ended: exit status 3; its log ends with\n\tloading weights\n\tno such device")
	records, err := Records(l.dir)
	require.NoError(t, err)
	require.Empty(t, records)
}

func TestARefusalIsReportedInItsOwnWords(t *testing.T) {
	l := launcher(t)
	p := playing(t, "refuse")
	p.Timeout, p.Grace = time.Hour, time.Millisecond
	p.Ready, p.Refusal = TCP(address(freePort(t))), []string{"No common block size"}
	_, err := l.Start(t.Context(), p)
	require.ErrorContains(t, err, "will not come up, in its own words:\n\tValueError: No common block size for 16")
}

func TestNeverReady(t *testing.T) {
	l := launcher(t)
	p := playing(t, "hang")
	p.Timeout, p.Grace = 50*time.Millisecond, time.Millisecond
	p.Ready = TCP(address(freePort(t)))
	_, err := l.Start(t.Context(), p)
	require.ErrorContains(t, err, "starting engine: not ready within 50ms (asked last: dial tcp")

	ctx, cancel := context.WithCancelCause(t.Context())
	p.Timeout, p.Ready = time.Hour, func(context.Context) error {
		cancel(errors.New("interrupted"))
		return errors.New("not yet")
	}
	_, err = l.Start(ctx, p)
	require.ErrorContains(t, err, "starting engine: interrupted (asked last: not yet)")
}

func TestBusyPortsAndMissingCommands(t *testing.T) {
	l := launcher(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	p := playing(t, "serve", strconv.Itoa(port))
	p.Ports, p.Ready = []int{port}, TCP(address(port)) // it would look ready
	_, err = l.Start(t.Context(), p)
	require.ErrorContains(t, err, fmt.Sprintf("starting engine: port %d is in use already", port))
	require.NoFileExists(t, p.Log, "nothing started")

	_, err = l.Start(t.Context(), Process{Name: "engine", Argv: []string{"no-such-command"}, Log: p.Log})
	require.ErrorContains(t, err, `starting engine: exec: "no-such-command": executable file not found`)
	_, err = l.Start(t.Context(), Process{Name: "engine", Log: p.Log})
	require.ErrorContains(t, err, "needs a name, a command and a log")
}

// The group goes, not only its leader.
func TestTheWholeGroupEnds(t *testing.T) {
	for _, play := range []string{"stubborn", "deserter"} {
		t.Run(play, func(t *testing.T) {
			l, port := launcher(t), freePort(t)
			p := playing(t, play, strconv.Itoa(port))
			p.Grace, p.Ready = 10*time.Millisecond, TCP(address(port))
			s, err := l.Start(t.Context(), p)
			require.NoError(t, err)
			require.Len(t, marked(s.record), 2)
			require.NoError(t, s.Stop(t.Context()))
			require.Eventually(t, func() bool { return len(marked(s.record)) == 0 }, 10*time.Second, time.Millisecond)
			require.NoError(t, checkPorts([]int{port}))
		})
	}
}

func TestDeathLater(t *testing.T) {
	l, port := launcher(t), freePort(t)
	p := playing(t, "serve", strconv.Itoa(port))
	p.Ready = TCP(address(port))
	s, err := l.Start(t.Context(), p)
	require.NoError(t, err)
	s.Kill()
	<-s.Exited()
	require.ErrorContains(t, s.Err(), "engine ended: signal: killed")
}

// TestSweep: what a run that was killed has left up is gone once the next one
// has begun, and what a living one or a person keeps is not.
func TestSweep(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	scratch := filepath.Join(t.TempDir(), "scratch")
	require.NoError(t, os.Mkdir(scratch, 0o755))
	run := copyOf("owner", dir, strconv.Itoa(port), filepath.Join(t.TempDir(), "engine.log"), scratch)
	out, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started: <nil>\n", line)

	l, err := New(dir)
	require.NoError(t, err)
	require.Empty(t, l.Swept(), "its run lives")
	require.NoError(t, TCP(address(port))(t.Context()))
	require.NoError(t, l.Close(t.Context()))

	require.NoError(t, run.Process.Kill())
	require.Error(t, run.Wait())
	require.NoError(t, TCP(address(port))(t.Context()), "it outlives its run, or there is nothing to sweep")
	l, err = New(dir)
	require.NoError(t, err)
	require.Len(t, l.Swept(), 1)
	require.Equal(t, "engine", l.Swept()[0].Name)
	require.NoDirExists(t, scratch)
	require.Eventually(t, func() bool { return checkPorts([]int{port}) == nil }, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Close(t.Context()))
	left, err := filepath.Glob(filepath.Join(dir, "run-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestKeep(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	first, err := New(dir)
	require.NoError(t, err)
	p := playing(t, "serve", strconv.Itoa(port))
	p.Ready = TCP(address(port))
	s, err := first.Start(t.Context(), p)
	require.NoError(t, err)
	t.Cleanup(func() { s.Kill(); <-s.Exited() })
	require.NoError(t, s.Keep())
	require.NoError(t, first.Close(t.Context()))

	second, err := New(dir)
	require.NoError(t, err)
	require.Empty(t, second.Swept())
	require.NoError(t, s.Err())
	require.NoError(t, TCP(address(port))(t.Context()))
	require.NoError(t, second.Close(t.Context()))
}

// A record whose process is gone must not lead to whoever has its id now.
func TestSweepKillsNobodyElse(t *testing.T) {
	dir := t.TempDir()
	innocent := copyOf("hang")
	require.NoError(t, innocent.Start())
	t.Cleanup(func() {
		require.NoError(t, innocent.Process.Signal(syscall.Signal(0)))
		require.NoError(t, innocent.Process.Kill())
		require.Error(t, innocent.Wait())
	})
	record := Record{
		Name: "engine", PID: innocent.Process.Pid, Mark: "ANOTHER", Owner: filepath.Join(dir, "run-gone.lock"), path: recordPath(dir, "ANOTHER"),
	}
	require.NoError(t, record.write())
	l, err := New(dir)
	require.NoError(t, err)
	require.Empty(t, l.Swept())
	require.NoFileExists(t, record.path)
	require.NoError(t, l.Close(t.Context()))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.json"), []byte(`{"pid": 1, "mark": "x"}`), 0o600))
	_, err = New(dir)
	require.ErrorContains(t, err, "it names no process of ours")
}

func TestCloseEndsInReverse(t *testing.T) {
	l, err := New(t.TempDir())
	require.NoError(t, err)
	log := filepath.Join(t.TempDir(), "both.log")
	for _, name := range []string{"first", "second"} {
		port := freePort(t)
		p := playing(t, "serve", strconv.Itoa(port))
		p.Name, p.Log, p.Ready = name, log, TCP(address(port))
		p.Env = append(p.Env, "LAUNCH_NAME=: "+name)
		_, err := l.Start(t.Context(), p)
		require.NoError(t, err)
	}
	require.NoError(t, l.Close(t.Context()))
	require.NoError(t, l.Close(t.Context()))
	require.Equal(t, []string{"ending as asked: second", "ending as asked: first"}, tail(log))
	_, err = l.Start(t.Context(), playing(t, "hang"))
	require.ErrorContains(t, err, "the launcher is closed")
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.Empty(t, tail(path))
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, "line %d\n\n", i)
	}
	require.NoError(t, os.WriteFile(path, []byte(text.String()+strings.Repeat("é", 1000)), 0o600))
	lines := tail(path)
	require.Len(t, lines, tailLines)
	require.Equal(t, "line 9999", lines[tailLines-2])
	require.Equal(t, strings.Repeat("é", 250)+" …", lines[tailLines-1])
}

func TestFollower(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write := func(text string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		defer f.Close()
		_, err = f.WriteString(text)
		require.NoError(t, err)
	}
	f := follower{path: path}
	require.Empty(t, f.fresh())
	write("one\ntw")
	require.Equal(t, []string{"one"}, f.fresh())
	write("o\n")
	require.Equal(t, []string{"two"}, f.fresh())
	require.Empty(t, f.fresh())
}
