package tiny

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
)

// shared is a model that no test changes: writing one takes a second.
var shared string

func TestMain(m *testing.M) {
	var err error
	if shared, err = os.MkdirTemp("", "tiny-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(shared)
	os.Exit(code)
}

func written(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(shared, "models", "tiny")
	require.NoError(t, Write(dir))
	return dir
}

// The same bytes on every machine, or two runs would not be of one model.
func TestTheBytesAreFixed(t *testing.T) {
	dir := written(t)
	for name, want := range map[string]string{
		"model.safetensors": "cb702582f06826f9",
		"model.gguf":        "486f06f9a0c25248",
		"tokenizer.json":    "6fad7efe6754b1bb",
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		sum := sha256.Sum256(data)
		require.Equal(t, want, hex.EncodeToString(sum[:8]), "%s: raise version where the change is meant", name)
	}
}

func TestFactsAreThoseOfTheConfig(t *testing.T) {
	config, err := os.Open(filepath.Join(written(t), "config.json"))
	require.NoError(t, err)
	defer config.Close()
	facts, err := fixtures.ReadModelFacts(config)
	require.NoError(t, err)
	require.Equal(t, Facts(), facts)
}

func TestACompleteModelIsLeftAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tiny")
	require.NoError(t, Write(dir))
	mark := filepath.Join(dir, "config.json")
	require.NoError(t, os.WriteFile(mark, []byte("mine"), 0o600))
	require.NoError(t, Write(dir))
	data, err := os.ReadFile(mark)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "VERSION"), []byte("0\n"), 0o600))
	require.NoError(t, Write(dir))
	data, err = os.ReadFile(mark)
	require.NoError(t, err)
	require.NotEqual(t, "mine", string(data), "an older one is replaced")
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".tiny-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// Both layouts hold the same values, where each format says that they are.
func TestBothLayoutsHoldTheSameWeights(t *testing.T) {
	dir := written(t)
	data, err := os.ReadFile(filepath.Join(dir, safetensorsFile))
	require.NoError(t, err)
	size := binary.LittleEndian.Uint64(data)
	var header map[string]struct {
		DType   string `json:"dtype"`
		Shape   []int
		Offsets [2]int `json:"data_offsets"`
	}
	require.NoError(t, json.Unmarshal(data[8:8+size], &header))
	values := data[8+size:]
	gguf, err := os.ReadFile(GGUF(dir))
	require.NoError(t, err)

	at := len(gguf)
	for _, tensor := range tensors() {
		at -= 4 * tensor.len()
	}
	require.Zero(t, at%alignment, "the values begin at the alignment")
	for _, tensor := range tensors() {
		entry, ok := header[tensor.name]
		require.True(t, ok, tensor.name)
		require.Equal(t, 2*tensor.len(), entry.Offsets[1]-entry.Offsets[0])
		inHF := func(row, column int) float32 {
			i := entry.Offsets[0] + 2*(row*tensor.columns+column)
			return math.Float32frombits(uint32(binary.LittleEndian.Uint16(values[i:])) << 16)
		}
		inGGUF := func(row, column int) float32 {
			return math.Float32frombits(binary.LittleEndian.Uint32(gguf[at+4*(row*tensor.columns+column):]))
		}
		last := tensor.columns - 1
		if tensor.heads == 0 {
			require.Equal(t, inHF(0, last), inGGUF(0, last), tensor.name)
		} else { // the partner of row 0 is half a head away in one, next in the other
			require.Equal(t, inHF(0, last), inGGUF(0, last), tensor.name)
			require.Equal(t, inHF(headDim/2, last), inGGUF(1, last), tensor.name)
			require.Equal(t, inHF(headDim+1, 0), inGGUF(headDim+2, 0), tensor.name)
		}
		at += 4 * tensor.len()
	}
	require.Equal(t, len(gguf), at)
}

// Text and ids translate into each other, special tokens included.
func TestEveryIDIsOneWord(t *testing.T) {
	seen := make(map[string]bool)
	for id := range Vocab {
		require.False(t, seen[word(id)])
		seen[word(id)] = true
	}
	require.Equal(t, "w8", word(fixtures.FirstToken), "no workload sends a special token")
	require.Len(t, special, fixtures.FirstToken)
}

// The values have the variance that the scales are meant for.
func TestUniform(t *testing.T) {
	var sum, squares float64
	const n = 100_000
	for i := range uint64(n) {
		v := uniform(mix(i))
		sum, squares = sum+v, squares+v*v
	}
	require.InDelta(t, 0, sum/n, 0.02)
	require.InDelta(t, 1, squares/n, 0.02)
	require.Equal(t, float32(1), rounded(1.001))
	require.Equal(t, float32(1.0078125), rounded(1.005))
}
