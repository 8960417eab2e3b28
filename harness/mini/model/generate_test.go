package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func newModel(tb testing.TB, config Config) *Model {
	tb.Helper()
	m, err := New(config)
	require.NoError(tb, err)
	return m
}

// oneGoroutine marks a test that measures what the weights do. The race
// detector makes it several times slower and has nothing to find in it.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("one goroutine and much arithmetic: nothing for the race detector to find")
	}
}

// randomTokens is a prompt of n tokens, a function of the seed.
func randomTokens(m *Model, n int, seed uint64) []int32 {
	source := rand.New(rand.NewPCG(seed, 1))
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = source.Int32N(int32(m.config.Vocab))
	}
	return tokens
}

// A cache is the paged KV of one sequence together with how it is computed.
type cache struct {
	m         *Model
	blockSize int
	blocks    [][]float32
	length    int // tokens whose KV exists
}

// newCache has room for a number of tokens. Its memory is full of garbage, as
// that of a block that was used before.
func newCache(m *Model, blockSize, tokens int) *cache {
	k := &cache{m: m, blockSize: blockSize, blocks: make([][]float32, (tokens+blockSize-1)/blockSize)}
	for i := range k.blocks {
		k.blocks[i] = make([]float32, m.BlockLen(blockSize))
		for j := range k.blocks[i] {
			k.blocks[i][j] = float32(math.NaN())
		}
	}
	return k
}

// clone copies the cache, so that a prefix can be continued twice.
func (k *cache) clone() *cache {
	c := *k
	c.blocks = make([][]float32, len(k.blocks))
	for i := range k.blocks {
		c.blocks[i] = append([]float32(nil), k.blocks[i]...)
	}
	return &c
}

// extend passes tokens through the model and returns the last one's logits.
func (k *cache) extend(tb testing.TB, tokens []int32) []float32 {
	tb.Helper()
	logits := make([]float32, k.m.config.Vocab)
	_, err := k.m.Forward(k.blockSize, []Sequence{{Tokens: tokens, Start: k.length, Blocks: k.blocks, Logits: logits}})
	require.NoError(tb, err)
	k.length += len(tokens)
	return logits
}

// generation is what a greedy run gives.
type generation struct {
	tokens []int32
	logits [][]float32 // of each token
}

// generate continues with n greedy tokens after the given last tokens of the
// prompt.
func (k *cache) generate(tb testing.TB, tokens []int32, n int) generation {
	tb.Helper()
	var g generation
	for range n {
		logits := k.extend(tb, tokens)
		next := Greedy(logits)
		g.tokens, g.logits = append(g.tokens, next), append(g.logits, logits)
		tokens = []int32{next}
	}
	return g
}

// kv is the KV of all tokens, [layer][plane][token][value], whatever the block
// size.
func (k *cache) kv() []float32 {
	var all []float32
	for layer := range k.m.config.Layers {
		for plane := range planes {
			for token := range k.length {
				from, to := k.m.Span(k.blockSize, layer, plane, token%k.blockSize)
				all = append(all, k.blocks[token/k.blockSize][from:to]...)
			}
		}
	}
	return all
}
