//go:build llamacpp

package bench_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// TestDamagedSlotFile: KV that a real engine saved to files is damaged between
// the cold and the warm pass. Unharmed it proves identical; damaged, every
// counter still says that all is well, and the verdict is corrupt.
func TestDamagedSlotFile(t *testing.T) {
	files := harness.Row(t, "engine-files")
	for _, c := range []struct {
		name    string
		damage  func(data []byte) []byte // of each file
		want    []row.Code
		verdict verdict.Verdict
	}{
		{"none", func(data []byte) []byte { return data }, nil, verdict.Identical},
		{"an exponent bit of every value of a stretch", stretch(func(v uint32) uint32 { return v ^ 1<<24 }), []row.Code{row.OutputDiffers, row.LogprobShift, row.LogprobNull}, verdict.Corrupt},
		{"a stretch of zeros", stretch(func(uint32) uint32 { return 0 }), []row.Code{row.OutputDiffers, row.LogprobShift}, verdict.Corrupt},
		{"one value that is no number", one(func(uint32) uint32 { return math.Float32bits(float32(math.NaN())) }), []row.Code{row.OutputDiffers, row.LogprobShift, row.LogprobNull, row.RequestFailed}, ""},
		{"cut off in the middle", func(data []byte) []byte { return data[:len(data)/2] }, []row.Code{row.RequestFailed}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cell, server := harness.LiveCell(t, files, harness.TestCell{Requests: 2})
			damaged := beforeWarm(t, server, func() error { return rewrite(server.Facts["slot-dir"], c.damage) })
			proof, findings, err := cell.Proof(t.Context())
			require.NoError(t, err)
			require.NoError(t, damaged())
			if c.want == nil {
				require.Empty(t, findings)
			} else {
				require.NotEmpty(t, findings)
				require.Contains(t, c.want, findings[0].Code, "%v", findings)
			}
			if c.verdict != "" {
				require.Equal(t, c.verdict, proof.Verdict, "%v", findings)
				require.Equal(t, proof.Result.Warm.Expected.Total.Min, proof.Result.Warm.HitTokens)
			}
		})
	}
}

// TestSwappedSlotFiles: the files of two prompts exchange their places. The
// engine knows the tokens of a file and reuses nothing of it, which is seen as
// hits that are missing.
func TestSwappedSlotFiles(t *testing.T) {
	cell, server := harness.LiveCell(t, harness.Row(t, "engine-files"), harness.TestCell{Requests: 2})
	swapped := beforeWarm(t, server, func() error {
		paths := slotFiles(server.Facts["slot-dir"])
		if len(paths) < 2 {
			return fmt.Errorf("want the files of two prompts, found %v", paths)
		}
		a, b := paths[len(paths)-2], paths[len(paths)-1] // a sacrificial prompt's is older
		return errors.Join(os.Rename(a, a+".aside"), os.Rename(b, a), os.Rename(a+".aside", b))
	})
	_, findings, err := cell.Proof(t.Context())
	require.NoError(t, err)
	require.NoError(t, swapped())
	require.NotEmpty(t, findings)
	require.Equal(t, row.HitBelowOracle, findings[0].Code, "%v", findings)
}

func slotFiles(dir string) []string {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.bin")) // the pattern is right
	return paths
}

// rewrite damages every file of a directory.
func rewrite(dir string, damage func([]byte) []byte) error {
	for _, path := range slotFiles(dir) {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, damage(data), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// layer is where the values of a layer are in the middle of the model's keys:
// its four layers of keys and four of values take an eighth of a file each.
func layer(data []byte) int { return len(data) / 16 * 3 &^ 3 }

// stretch changes the float32 values of a fiftieth of a file.
func stretch(change func(uint32) uint32) func([]byte) []byte {
	return func(data []byte) []byte {
		from := layer(data)
		for at := from; at < from+len(data)/50; at += 4 {
			binary.LittleEndian.PutUint32(data[at:], change(binary.LittleEndian.Uint32(data[at:])))
		}
		return data
	}
}

// one changes a single value.
func one(change func(uint32) uint32) func([]byte) []byte {
	return func(data []byte) []byte {
		at := layer(data)
		binary.LittleEndian.PutUint32(data[at:], change(binary.LittleEndian.Uint32(data[at:])))
		return data
	}
}
