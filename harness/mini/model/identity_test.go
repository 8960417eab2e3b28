package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// setProcs runs the rest of a test with GOMAXPROCS n: gonum goes parallel
// above a size.
func setProcs(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// requireSameBits names the first value that differs in any bit.
func requireSameBits(t *testing.T, want, got []float32, format string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, "bits differ", "%s: value %d of %d is %v (%08x), want %v (%08x)", fmt.Sprintf(format, args...),
				i, len(want), got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

func TestProjectionKeepsRowsAtEveryHeight(t *testing.T) {
	const most = 72 // beyond one of gonum's blocks of 64
	for _, procs := range []int{1, 2} {
		for _, config := range []Config{Nano(), Mini()} {
			t.Run(fmt.Sprintf("procs=%d/hidden=%d", procs, config.Hidden), func(t *testing.T) {
				setProcs(t, procs)
				m := newModel(t, config)
				source := rand.New(rand.NewPCG(1, 2))
				for name, w := range map[string]matrix{
					"qkv": m.layers[0].qkv, "out": m.layers[0].out, "gateUp": m.layers[0].gateUp, "down": m.layers[0].down,
				} {
					in := make([]float32, most*w.rows)
					for i := range in {
						in[i] = float32(source.NormFloat64())
					}
					want := make([]float32, most*w.columns)
					w.project(in, most, want)
					for rows := 1; rows < most; rows++ {
						got := make([]float32, rows*w.columns)
						w.project(in[(most-rows)*w.rows:], rows, got)
						requireSameBits(t, want[(most-rows)*w.columns:], got, "%s with %d rows", name, rows)
					}
				}
			})
		}
	}
}

func TestEverySplitGivesTheSameBits(t *testing.T) {
	for _, test := range []struct {
		config Config
		procs  int
		blocks []int
		prompt int
		step   int // between the split points that are tried
	}{
		{Nano(), 1, []int{16, 32, 64, 128}, 100, 1},
		{Nano(), 2, []int{16}, 100, 1},
		{Mini(), 1, []int{16, 128}, 200, 99},
		{Mini(), 2, []int{32, 64}, 200, 99},
	} {
		if raceDetector {
			test.step *= 10
		}
		// The yardstick has a block size and a number of processors of its
		// own, so that those are all compared with each other too.
		m := newModel(t, test.config)
		prompt := randomTokens(m, test.prompt, 1)
		full := newCache(m, 200, test.prompt)
		want, wantKV := full.extend(t, prompt), full.kv()
		for _, blockSize := range test.blocks {
			t.Run(fmt.Sprintf("hidden=%d/procs=%d/block=%d", test.config.Hidden, test.procs, blockSize), func(t *testing.T) {
				setProcs(t, test.procs)
				for split := 1; split < test.prompt; split += test.step {
					k := newCache(m, blockSize, test.prompt)
					k.extend(t, prompt[:split])
					requireSameBits(t, want, k.extend(t, prompt[split:]), "logits, split at %d", split)
					requireSameBits(t, wantKV, k.kv(), "KV, split at %d", split)
				}
			})
		}
	}
}

func TestEveryChunkSizeGivesTheSameBits(t *testing.T) {
	m := newModel(t, Nano())
	const length = 130
	prompt := randomTokens(m, length, 2)
	full := newCache(m, 16, length)
	want, wantKV := full.extend(t, prompt), full.kv()
	for chunk := 1; chunk < length; chunk++ {
		k := newCache(m, 32, length)
		var got []float32
		for first := 0; first < length; first += chunk {
			got = k.extend(t, prompt[first:min(first+chunk, length)])
		}
		requireSameBits(t, want, got, "logits in chunks of %d", chunk)
		requireSameBits(t, wantKV, k.kv(), "KV in chunks of %d", chunk)
	}
}

// TestBatchCompositionKeepsBits puts a sequence between others of random
// lengths: prompts, continuations and decode steps, some without logits.
func TestBatchCompositionKeepsBits(t *testing.T) {
	for _, test := range []struct {
		config Config
		rounds int
	}{{Nano(), 30}, {Mini(), 3}} {
		for _, procs := range []int{1, 2} {
			t.Run(fmt.Sprintf("hidden=%d/procs=%d", test.config.Hidden, procs), func(t *testing.T) {
				setProcs(t, procs)
				m := newModel(t, test.config)
				source := rand.New(rand.NewPCG(3, 4))
				for round := range test.rounds {
					var batch []Sequence
					var want []*cache
					var wantLogits [][]float32
					for i := range 1 + source.IntN(6) {
						start, n := source.IntN(100), 1+source.IntN(80)
						if source.IntN(3) == 0 {
							n = 1
						}
						tokens := randomTokens(m, start+n, source.Uint64())
						alone := newCache(m, 16, start+n)
						together := newCache(m, 16, start+n)
						if start > 0 {
							alone.extend(t, tokens[:start])
							together = alone.clone()
						}
						s := Sequence{Tokens: tokens[start:], Start: start, Blocks: together.blocks}
						if i%3 != 2 {
							s.Logits = make([]float32, m.config.Vocab)
						}
						batch = append(batch, s)
						wantLogits = append(wantLogits, alone.extend(t, tokens[start:]))
						want = append(want, alone)
					}
					_, err := m.Forward(16, batch)
					require.NoError(t, err)
					for i, s := range batch {
						if s.Logits != nil {
							requireSameBits(t, wantLogits[i], s.Logits, "round %d, logits of sequence %d of %d", round, i, len(batch))
						}
						got := &cache{m: m, blockSize: 16, blocks: s.Blocks, length: s.end()}
						requireSameBits(t, want[i].kv(), got.kv(), "round %d, KV of sequence %d of %d", round, i, len(batch))
					}
				}
			})
		}
	}
}

func TestConcurrentPassesDoNotDisturbEachOther(t *testing.T) {
	m := newModel(t, Nano())
	const workers, rounds, length = 4, 10, 70
	want := make([][]float32, workers)
	for worker := range want {
		want[worker] = newCache(m, 16, length).extend(t, randomTokens(m, length, uint64(worker)))
	}
	got := make([][][]float32, workers)
	var group errgroup.Group
	for worker := range workers {
		got[worker] = make([][]float32, rounds)
		tokens := randomTokens(m, length, uint64(worker))
		group.Go(func() error {
			for round := range rounds {
				logits := make([]float32, m.config.Vocab)
				_, err := m.Forward(16, []Sequence{{Tokens: tokens, Blocks: newCache(m, 16, length).blocks, Logits: logits}})
				if err != nil {
					return err
				}
				got[worker][round] = logits
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	for worker := range workers {
		for round := range rounds {
			requireSameBits(t, want[worker], got[worker][round], "worker %d, round %d", worker, round)
		}
	}
}
