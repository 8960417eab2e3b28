package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"
)

const vocab = 4096

func newTokenizer(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := New(vocab)
	require.NoError(t, err)
	return tok
}

func TestEncode(t *testing.T) {
	tok := newTokenizer(t)
	for _, c := range []struct {
		name, text string
		want       []int32
	}{
		{"words", "w8 w4095", []int32{8, 4095}},
		{"any white space", " w10\n\tw11  w12 ", []int32{10, 11, 12}},
		{"nothing", "", []int32{}},
		{"specials by name", "<pad> <s> </s> <unk>", []int32{0, 1, 2, 3}},
		{"specials inside words", "w9<s>w10<|end|>", []int32{9, 1, 10, 7}},
		{"specials side by side", "<s></s>", []int32{1, 2}},
		{"first id past the vocabulary", "w4096", []int32{UNK}},
		{"the word of a special id", "w7", []int32{UNK}},
		{"leading zero", "w010", []int32{UNK}},
		{"sign", "w+10", []int32{tok.hashed("w+10")}},
		{"prose", "hello w10", []int32{59, 10}},
		{"bare w", "w", []int32{tok.hashed("w")}},
		{"number that overflows", "w99999999999999999999", []int32{UNK}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, tok.Encode(c.text)) })
	}
}

func TestDecode(t *testing.T) {
	tok := newTokenizer(t)
	ids := []int32{1, 17, 0, 4000, 2}
	require.Equal(t, "<s> w17 <pad> w4000 </s>", tok.Decode(ids, false))
	require.Equal(t, "w17 w4000", tok.Decode(ids, true))
	require.Equal(t, "", tok.Decode(nil, true))
}

func TestDelta(t *testing.T) {
	tok := newTokenizer(t)
	require.Equal(t, " w12", tok.Delta(12, true))
	require.Equal(t, "", tok.Delta(EOS, true))
	require.Equal(t, " </s>", tok.Delta(EOS, false))
}

// Any ids, special ones included, survive the way through text.
func TestRoundTrip(t *testing.T) {
	tok := newTokenizer(t)
	back := func(seed uint64, n uint8) bool {
		r := rand.New(rand.NewPCG(seed, 1))
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = r.Int32N(vocab)
		}
		return fmt.Sprint(tok.Encode(tok.Decode(ids, false))) == fmt.Sprint(ids)
	}
	require.NoError(t, quick.Check(back, nil))

	all := make([]int32, vocab)
	for i := range all {
		all[i] = int32(i)
	}
	require.Equal(t, all, tok.Encode(tok.Decode(all, false)))
	require.Equal(t, all[FirstWord:], tok.Encode(tok.Decode(all, true)))
}

// The deltas of a stream joined are the whole text.
func TestDeltasMakeTheText(t *testing.T) {
	tok := newTokenizer(t)
	ids := []int32{8, 0, 900, 2, 4095}
	for _, skip := range []bool{true, false} {
		text := ""
		for _, id := range ids {
			text += tok.Delta(id, skip)
		}
		require.Equal(t, " "+tok.Decode(ids, skip), text)
	}
}

func TestChat(t *testing.T) {
	tok := newTokenizer(t)
	user := []Message{{Role: "user", Content: "w10 w11 w12"}}
	require.Equal(t, []int32{4, 10, 11, 12, 7, 5}, tok.Encode(Chat(user, true)), "as vLLM 0.32.0 returned it")
	turns := []Message{{"system", "w9"}, {"user", "w10"}, {"assistant", "w11"}}
	require.Equal(t, []int32{6, 9, 7, 4, 10, 7, 5, 11, 7}, tok.Encode(Chat(turns, false)))
}

// Words of prose are different tokens, none of them special, but for chance.
func TestProse(t *testing.T) {
	tok := newTokenizer(t)
	seen := map[int32]bool{}
	words := []string{"Hello", "hello", "light,", "light", "Rays", "of", "is", "wave", "é", "日本"}
	for _, id := range tok.Encode(strings.Join(words, " ")) {
		require.GreaterOrEqual(t, id, int32(FirstWord))
		require.True(t, tok.Valid(id))
		seen[id] = true
	}
	require.Len(t, seen, len(words))
}

func TestTooSmall(t *testing.T) {
	_, err := New(FirstWord)
	require.ErrorContains(t, err, "vocabulary of 8")
}

func FuzzEncode(f *testing.F) {
	f.Add("w8 <s>w9</s")
	f.Add("<|us<|user|>er|>")
	f.Fuzz(func(t *testing.T, text string) {
		tok := newTokenizer(t)
		ids := tok.Encode(text)
		for _, id := range ids {
			require.True(t, tok.Valid(id))
		}
		require.Equal(t, ids, tok.Encode(tok.Decode(ids, false)))
	})
}
