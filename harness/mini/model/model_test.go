package model

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewRefusesWhatCannotBe(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*Config)
		want  string
	}{
		{"no layers", func(c *Config) { c.Layers = 0 }, "Layers is 0"},
		{"negative width", func(c *Config) { c.Hidden = -1 }, "Hidden is -1"},
		{"no vocabulary", func(c *Config) { c.Vocab = 0 }, "Vocab is 0"},
		{"no context", func(c *Config) { c.Context = 0 }, "Context is 0"},
		{"no key heads", func(c *Config) { c.KVHeads = 0 }, "KVHeads is 0"},
		{"too large", func(c *Config) { c.Intermediate = math.MaxInt }, "Intermediate is"},
		{"heads that do not divide", func(c *Config) { c.Heads = 3 }, "3 Heads over 2 KVHeads, want a multiple"},
		{"odd head", func(c *Config) { c.HeadDim = 7 }, "HeadDim is 7, want an even number"},
		{"no base", func(c *Config) { c.RopeTheta = 0 }, "RopeTheta is 0"},
		{"NaN base", func(c *Config) { c.RopeTheta = math.NaN() }, "RopeTheta is NaN"},
		{"infinite base", func(c *Config) { c.RopeTheta = math.Inf(1) }, "RopeTheta is +Inf"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := Nano()
			test.spoil(&config)
			_, err := New(config)
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := New(Config{})
	for _, name := range []string{"Layers", "Hidden", "Heads", "KVHeads", "HeadDim", "Intermediate", "Vocab", "Context", "RopeTheta"} {
		require.ErrorContains(t, err, name+" is 0", "every fault is named")
	}
}

func TestFingerprintChangesWithTheWeights(t *testing.T) {
	same := newModel(t, Nano())
	require.Equal(t, same.Fingerprint(), newModel(t, Nano()).Fingerprint())
	require.Regexp(t, `^[0-9a-f]{16}$`, same.Fingerprint())
	require.Equal(t, Nano(), same.Config())
	seen := map[string]string{same.Fingerprint(): "Nano"}
	for name, change := range map[string]func(*Config){
		"seed":    func(c *Config) { c.Seed++ },
		"layers":  func(c *Config) { c.Layers++ },
		"heads":   func(c *Config) { c.KVHeads = c.Heads },
		"theta":   func(c *Config) { c.RopeTheta *= 2 },
		"context": func(c *Config) { c.Context++ },
	} {
		config := Nano()
		change(&config)
		fingerprint := newModel(t, config).Fingerprint()
		require.NotContains(t, seen, fingerprint, name)
		seen[fingerprint] = name
	}
	same.layers[1].down.data[5]++
	require.NotContains(t, seen, same.digest(), "one weight")
}

func TestSeedsGiveOtherOutputs(t *testing.T) {
	a, b := newModel(t, seeded(Nano(), 1)), newModel(t, seeded(Nano(), 2))
	prompt := randomTokens(a, 20, 1)
	require.NotEqual(t, newCache(a, 16, 20).extend(t, prompt), newCache(b, 16, 20).extend(t, prompt))
}

// TestMiniPromises holds the default size to what others rely on.
func TestMiniPromises(t *testing.T) {
	require.Equal(t, 4096, Mini().Vocab)
	require.Equal(t, 4096, Mini().Context)
	require.GreaterOrEqual(t, Nano().Vocab, 512)
	require.GreaterOrEqual(t, Nano().Context, 512)
	require.Equal(t, 1024, newModel(t, Mini()).TokenBytes(), "as the doc of Mini says")
}

func TestForwardAcceptsTheWholeContext(t *testing.T) {
	m := newModel(t, Nano())
	k := newCache(m, 128, m.config.Context)
	logits := k.extend(t, randomTokens(m, m.config.Context, 1))
	require.False(t, math.IsNaN(float64(logits[0])))
}

func TestForwardOfNothingDoesNothing(t *testing.T) {
	flops, err := newModel(t, Nano()).Forward(16, nil)
	require.NoError(t, err)
	require.Zero(t, flops)
}

func TestForwardRefusesABadBatchAndWritesNothing(t *testing.T) {
	m := newModel(t, Nano())
	for _, test := range []struct {
		name      string
		blockSize int
		spoil     func(*Sequence)
		want      string
	}{
		{"no block size", 0, func(*Sequence) {}, "block size is 0"},
		{"no tokens", 16, func(s *Sequence) { s.Tokens = nil }, "no tokens"},
		{"negative token", 16, func(s *Sequence) { s.Tokens[3] = -1 }, "token -1 at position 3"},
		{"token beyond the vocabulary", 16, func(s *Sequence) { s.Tokens[2] = 1024 }, "token 1024 at position 2 is outside the vocabulary of 1024"},
		{"negative start", 16, func(s *Sequence) { s.Start = -1 }, "start is -1"},
		{"beyond the context", 16, func(s *Sequence) { s.Start = 1024 - 19 }, "20 tokens from position 1005 exceed the context of 1024"},
		{"start that overflows", 16, func(s *Sequence) { s.Start = math.MaxInt }, "exceed the context"},
		{"too few blocks", 16, func(s *Sequence) { s.Blocks = s.Blocks[:1] }, "1 blocks of 16 tokens, want 2 for 20 tokens"},
		{"too few blocks for the start", 16, func(s *Sequence) { s.Start = 13 }, "2 blocks of 16 tokens, want 3 for 33 tokens"},
		{"short block", 16, func(s *Sequence) { s.Blocks[1] = s.Blocks[1][1:] }, "block 1 has 1023 values, want 1024"},
		{"blocks of another size", 8, func(*Sequence) {}, "want 3 for 20 tokens"},
		{"short logits", 16, func(s *Sequence) { s.Logits = s.Logits[1:] }, "room for 1023 logits, want 1024"},
	} {
		t.Run(test.name, func(t *testing.T) {
			good, bad := newCache(m, 16, 20), newCache(m, 16, 20)
			for _, k := range []*cache{good, bad} {
				for _, block := range k.blocks {
					clear(block)
				}
			}
			s := Sequence{Tokens: randomTokens(m, 20, 1), Blocks: bad.blocks, Logits: make([]float32, 1024)}
			test.spoil(&s)
			_, err := m.Forward(test.blockSize, []Sequence{{Tokens: randomTokens(m, 20, 1), Blocks: good.blocks}, s})
			require.ErrorContains(t, err, test.want)
			for _, block := range slices.Concat(good.blocks, bad.blocks) {
				require.Equal(t, make([]float32, len(block)), block)
			}
		})
	}
}
