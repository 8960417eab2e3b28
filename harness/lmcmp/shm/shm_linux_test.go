package shm

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if os.Getenv("SHM_TEST_OWNER") != "" {
		own()
	}
	os.Exit(m.Run())
}

// own makes a segment, says its name, and lives until its input ends.
func own() {
	s, err := Create(4096)
	if err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Stdout.WriteString(s.Name() + "\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

func TestTwoMappingsOfOneSegment(t *testing.T) {
	s, err := Create(10_000)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	info, err := os.Stat("/dev/shm" + s.Name())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.Len(t, s.Bytes(), 10_000)

	other, err := Open(s.Name(), 0)
	require.NoError(t, err)
	require.NoError(t, s.Populate())
	s.Bytes()[9_999] = 7
	require.EqualValues(t, 7, other.Bytes()[9_999])
	require.NoError(t, other.Close())
	require.FileExists(t, "/dev/shm"+s.Name(), "whoever only opened it does not remove it")

	require.NoError(t, s.Unlink())
	require.NoFileExists(t, "/dev/shm"+s.Name())
	s.Bytes()[0] = 1 // still mapped
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "again")
	require.Nil(t, s.Bytes())
}

func TestRefused(t *testing.T) {
	free, err := Free()
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"empty", second(Create(0)), "must be positive"},
		{"more than there is", second(Create(int(free) + 1<<30)), "free"},
		{"a path", second(Open("/../etc/passwd", 0)), "not a name"},
		{"no name", second(Open("/", 0)), "not a name"},
		{"missing", second(Open("/"+Prefix+"missing", 0)), "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) { require.ErrorContains(t, c.err, c.want) })
	}
	s, err := Create(4096)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = Open(s.Name(), 8192)
	require.ErrorContains(t, err, "has 4096 bytes, want 8192")
	_, err = CreateNamed(s.Name(), 4096)
	require.ErrorContains(t, err, "file exists")
}

func second(_ *Segment, err error) error { return err }

// A killed owner's segment is swept; one whose owner lives is not, nor one that
// is too young to tell.
func TestSweep(t *testing.T) {
	mine, err := Create(4096)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mine.Close()) })

	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "SHM_TEST_OWNER=1")
	_, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	name := line[:len(line)-1]
	theirs := fmt.Sprintf("/%s%d_", Prefix, cmd.Process.Pid) // others' are none of this test's business

	removed, err := sweep(theirs, 0)
	require.NoError(t, err)
	require.NotContains(t, removed, name, "its owner lives")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.FileExists(t, "/dev/shm"+name)
	removed, err = Sweep()
	require.NoError(t, err)
	require.NotContains(t, removed, name, "too young")
	removed, err = sweep(theirs, 0)
	require.NoError(t, err)
	require.Contains(t, removed, name)
	require.Equal(t, []string{name}, removed)
	require.FileExists(t, "/dev/shm"+mine.Name())
	require.NoFileExists(t, "/dev/shm"+name)
}
