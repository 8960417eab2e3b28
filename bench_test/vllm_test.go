//go:build vllm

package bench_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/verdict"
)

// TestUnsupportedBlockSize: vLLM's attention on a CPU takes multiples of 32. It
// says so after a long start, and the row fails with its words, not with a
// timeout.
func TestUnsupportedBlockSize(t *testing.T) {
	_, err := harness.Row(t, "baseline").Start(t.Context(), row.Env{BlockSize: 16, Concurrency: 2, Dir: t.TempDir()})
	require.ErrorContains(t, err, "it will not come up, in its own words")
	require.ErrorContains(t, err, "No common block size for 16")
}

// TestDamagedKVFiles: KV that vLLM's file connector has saved is damaged between
// the cold and the warm pass. vLLM notices nothing: its counters are those of a
// clean run.
func TestDamagedKVFiles(t *testing.T) {
	files := harness.Row(t, "engine-files")
	for _, c := range []struct {
		name    string
		damage  func(dirs [][]string) error // files by prompt
		want    []row.Code                  // one of them; nil: none
		restart bool                        // the engine is not to be used any more
	}{
		{"none", func([][]string) error { return nil }, nil, false},
		{"a bit of one value in each layer", each(func(v []byte) { v[len(v)/2&^3+3] ^= 1 << 2 }), []row.Code{row.OutputDiffers, row.LogprobShift}, false},
		{"the two halves of the tokens change places", each(halves), []row.Code{row.OutputDiffers, row.LogprobShift}, false},
		{"another prompt's KV", exchange, []row.Code{row.OutputDiffers, row.LogprobShift}, false},
		{"files that are cut off, which ends the engine", truncate, []row.Code{row.ServerDied}, true},
		// Observed on vLLM 0.32.0: what is not a number stays in the engine's blocks
		// and comes into the answers of prompts that never touched the files.
		{"all values are no numbers", each(notNumbers), []row.Code{row.LogprobNull}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cell, server := harness.LiveCell(t, files, harness.TestCell{Requests: 2, Concurrency: 1})
			require.NoError(t, os.RemoveAll(filepath.Join(server.Facts["dir"], "kv"))) // of the cells before
			damaged := beforeWarm(t, server, func() error {
				dirs, err := savedKV(filepath.Join(server.Facts["dir"], "kv"))
				return errors.Join(err, c.damage(dirs))
			})
			proof, findings, err := cell.Proof(t.Context())
			require.NoError(t, err)
			require.NoError(t, damaged())
			if c.want == nil {
				require.Empty(t, findings)
				require.Equal(t, verdict.Identical, proof.Verdict)
				require.Positive(t, proof.Result.Warm.HitTokens)
				return
			}
			if c.restart {
				require.NoError(t, server.Restart(t.Context(), "engine"))
			}
			require.True(t, slices.ContainsFunc(findings, func(f row.Finding) bool { return slices.Contains(c.want, f.Code) }), "%v", findings)
			if c.want[0] == row.ServerDied {
				return
			}
			require.Equal(t, verdict.Corrupt, proof.Verdict)
			require.Equal(t, proof.Result.Warm.Expected.Total.Min, proof.Result.Warm.HitTokens)
		})
	}
}

// TestAliveAndUseless: vLLM's in-process LMCache connector on a CPU starts and is
// healthy, and never reuses anything.
func TestAliveAndUseless(t *testing.T) {
	cell, _ := harness.LiveCell(t, harness.RowOfFile(t, "testdata/lmcache-in-process.toml"), harness.TestCell{Requests: 2, Concurrency: 1})
	_, findings, err := cell.Cycle(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, findings)
	require.Equal(t, row.HitBelowOracle, findings[0].Code, "%v", findings)
}

// savedKV are the files of vLLM's file connector: a directory for each prompt,
// in it a file for each layer.
func savedKV(dir string) (prompts [][]string, err error) {
	directories, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	for _, directory := range directories {
		files, err := filepath.Glob(filepath.Join(directory, "*.safetensors"))
		if err != nil {
			return nil, err
		}
		if len(files) > 0 {
			prompts = append(prompts, files)
		}
	}
	if len(prompts) < 2 {
		return nil, fmt.Errorf("want the KV of two prompts below %s, found %v", dir, prompts)
	}
	return prompts, nil
}

// each changes the values in every file: those after the header of safetensors.
func each(change func(values []byte)) func([][]string) error {
	return func(prompts [][]string) error {
		for _, files := range prompts {
			for _, path := range files {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				change(data[8+binary.LittleEndian.Uint64(data):])
				if err := os.WriteFile(path, data, 0o600); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// halves exchanges the first half of the tokens with the second.
func halves(values []byte) {
	half := len(values) / 2
	first := append([]byte(nil), values[:half]...)
	copy(values, values[half:])
	copy(values[half:], first)
}

// notNumbers makes every bfloat16 a NaN.
func notNumbers(values []byte) {
	for i := 0; i+1 < len(values); i += 2 {
		binary.LittleEndian.PutUint16(values[i:], 0x7fc0)
	}
}

// exchange gives each of two prompts the files of the other.
func exchange(prompts [][]string) error {
	for i, a := range prompts[0] {
		b := prompts[1][i]
		if err := errors.Join(os.Rename(a, a+".aside"), os.Rename(b, a), os.Rename(a+".aside", b)); err != nil {
			return err
		}
	}
	return nil
}

func truncate(prompts [][]string) error {
	for _, files := range prompts {
		for _, path := range files {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.Truncate(path, info.Size()/2); err != nil {
				return err
			}
		}
	}
	return nil
}
