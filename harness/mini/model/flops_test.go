package model

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFLOPsOfAModelCountedByHand(t *testing.T) {
	// Weights per layer: 2·(2+2+2) for queries, keys and values, 2·2 out,
	// 3·2·3 for the SwiGLU, together 34. A pair of tokens takes 2·2 for the
	// score and 2·2 for the sum. The logits of a row take 2·2·5.
	m := newModel(t, Config{Layers: 1, Hidden: 2, Heads: 1, KVHeads: 1, HeadDim: 2, Intermediate: 3, Vocab: 5, Context: 8, RopeTheta: 10000})
	for _, test := range []struct {
		start, n int
		want     int64
	}{
		{0, 1, 2*34*1 + 8*1 + 20},
		{0, 3, 2*34*3 + 8*(1+2+3) + 20},
		{3, 2, 2*34*2 + 8*(4+5) + 20},
		{7, 1, 2*34*1 + 8*8 + 20},
		{4, 0, 0},
	} {
		require.Equal(t, test.want, m.FLOPs(test.start, test.n), "FLOPs(%d, %d)", test.start, test.n)
	}
	require.Equal(t, int64(20), m.LogitFLOPs())
}

func TestForwardCountsWhatThePromptLessItsHitsNeeds(t *testing.T) {
	for _, config := range []Config{Nano(), Mini()} {
		m := newModel(t, config)
		const length, blockSize = 160, 32
		tokens := randomTokens(m, length, 1)
		cached := newCache(m, blockSize, length)
		cached.extend(t, tokens)
		for hits := 0; hits < length; hits += blockSize {
			t.Run(fmt.Sprintf("hidden=%d/hits=%d", config.Hidden, hits), func(t *testing.T) {
				s := Sequence{Tokens: tokens[hits:], Start: hits, Blocks: cached.blocks, Logits: make([]float32, config.Vocab)}
				got, err := m.Forward(blockSize, []Sequence{s})
				require.NoError(t, err)
				require.Equal(t, m.FLOPs(hits, length-hits), got)

				s.Logits = nil
				got, err = m.Forward(blockSize, []Sequence{s})
				require.NoError(t, err)
				require.Equal(t, m.FLOPs(hits, length-hits)-m.LogitFLOPs(), got, "without logits")
			})
		}
	}
}

func TestForwardCountsABatchAsItsSequences(t *testing.T) {
	m := newModel(t, Nano())
	var batch []Sequence
	var want int64
	for i, span := range []struct{ start, n int }{{0, 40}, {39, 1}, {10, 70}} {
		k := newCache(m, 16, span.start+span.n)
		tokens := randomTokens(m, span.start+span.n, uint64(i))
		if span.start > 0 {
			k.extend(t, tokens[:span.start])
		}
		batch = append(batch, Sequence{Tokens: tokens[span.start:], Start: span.start, Blocks: k.blocks, Logits: make([]float32, m.config.Vocab)})
		want += m.FLOPs(span.start, span.n)
	}
	got, err := m.Forward(16, batch)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestReuseSavesWork states the ratio in operations, which is what makes a hit
// fast; the benchmarks show it in time.
func TestReuseSavesWork(t *testing.T) {
	m := newModel(t, Mini())
	cold, warm := m.FLOPs(0, 1024), m.FLOPs(1023, 1)
	require.Greater(t, cold, 100*warm)
}
