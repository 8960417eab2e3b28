package cuda

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/cuda/standin"
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

// A standIn is the stand-in for the driver library, loaded.
type standIn struct {
	*standin.Driver
	driver *Driver
}

var buildStandIn = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kvproof-standin-")
	if err != nil {
		return "", err
	}
	removeAtExit = append(removeAtExit, dir)
	return standin.Build(dir)
})

var removeAtExit []string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(child(role))
	}
	code := m.Run()
	for _, dir := range removeAtExit {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

var loadStandIn = sync.OnceValues(func() (*standIn, error) {
	library, err := buildStandIn()
	if err != nil {
		return nil, err
	}
	return connectStandIn(library)
})

// connectStandIn loads a built stand-in.
func connectStandIn(library string) (*standIn, error) {
	d, err := standin.Connect(library)
	if err != nil {
		return nil, err
	}
	driver, err := LoadLibrary(library)
	return &standIn{d, driver}, err
}

// useStandIn loads the stand-in and checks at the end of the test that nothing
// was left behind.
func useStandIn(tb testing.TB) *standIn {
	tb.Helper()
	s, err := loadStandIn()
	if errors.Is(err, standin.ErrNoCompiler) {
		missing(tb, "%v", err)
	}
	require.NoError(tb, err)
	tb.Cleanup(func() {
		s.Revive()
		require.Empty(tb, s.Left())
	})
	return s
}

// openStandIn opens device 0 of the stand-in for the length of a test.
func openStandIn(tb testing.TB) (*standIn, *Device) {
	tb.Helper()
	s := useStandIn(tb)
	return s, openDevice(tb, s.driver)
}

func openDevice(tb testing.TB, d *Driver) *Device {
	tb.Helper()
	v, err := d.Open(0)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, v.Close()) })
	return v
}

// do runs f on the device and fails the test with its error; f must not use
// require, which would end the device's thread.
func do(tb testing.TB, v *Device, f func(*Context) error) {
	tb.Helper()
	require.NoError(tb, v.Do(f))
}

// leave makes a cleanup whose errors join the function's own.
func leave(err *error, f func() error) { *err = errors.Join(*err, f()) }

func errorContains(err error, want string) bool {
	return err != nil && strings.Contains(err.Error(), want)
}
