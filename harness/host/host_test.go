package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const meminfo = `MemTotal:       16326012 kB
MemFree:         1234567 kB
MemAvailable:    9876543 kB
Buffers:          100000 kB
HugePages_Total:       0
`

func TestParseMemory(t *testing.T) {
	m, err := parseMemory(strings.NewReader(meminfo))
	require.NoError(t, err)
	require.Equal(t, Memory{Free: 1_234_567 << 10, Available: 9_876_543 << 10}, m)

	m, err = parseMemory(strings.NewReader("MemFree: 5 kB\n"))
	require.NoError(t, err)
	require.Equal(t, Memory{5 << 10, 5 << 10}, m)

	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "no MemFree"},
		{"only what is available", "MemAvailable: 5 kB", "no MemFree"},
		{"another unit", "x\nMemFree: 5 MB", `line 2: "MemFree: 5 MB": want a number and kB`},
		{"no unit", "MemFree: 5", "line 1"},
		{"negative", "MemFree: -5 kB", "line 1"},
		{"no number", "MemFree: many kB", "line 1"},
		{"too much", "MemFree: 99999999999999999 kB", "line 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseMemory(strings.NewReader(test.text))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func FuzzParseMemory(f *testing.F) {
	f.Add(meminfo)
	f.Add("MemFree: 9007199254740991 kB")
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := parseMemory(strings.NewReader(text)); err == nil && (m.Free < 0 || m.Available < 0) {
			t.Errorf("parseMemory(%q) = %+v", text, m)
		}
	})
}

func TestReadMemoryFromFiles(t *testing.T) {
	dir := t.TempDir()
	m, err := readMemory(filepath.Join(dir, "none"))
	require.NoError(t, err)
	require.Equal(t, Memory{FallbackMemory, FallbackMemory}, m)

	bad := filepath.Join(dir, "bad")
	require.NoError(t, os.WriteFile(bad, []byte("MemFree: x kB"), 0o644))
	_, err = readMemory(bad)
	require.ErrorContains(t, err, bad+": line 1")
}

func TestReadLimitsOfThisMachine(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "not", "made", "yet")} {
		limits, err := ReadLimits(path)
		require.NoError(t, err)
		require.Positive(t, limits.MemoryFree)
		require.Positive(t, limits.DiskFree)
		require.Zero(t, limits.MaxL1+limits.MaxL2)
	}
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := ReadLimits(filepath.Join(file, "below a file"))
	require.ErrorContains(t, err, "below a file")
}
