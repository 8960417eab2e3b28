package tokenize_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/fixtures/dataset"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/tokenize"
)

// words is a tokenizer of one token a word, numbered as they come, with a chat
// template of one token around each message.
type words struct {
	ids      map[string]int32
	template func([]row.Message) string // nil: the usual one
	unknown  bool                       // it knows no word of lower case
}

func newWords() *words { return &words{ids: make(map[string]int32)} }

func (w *words) Tokenize(_ context.Context, text string, special bool) ([]int32, error) {
	ids := []int32{}
	if special {
		ids = append(ids, 1)
	}
	for _, word := range strings.Fields(text) {
		if w.unknown && strings.ToLower(word) == word && word[0] != '<' {
			word = "<unk>"
		}
		if w.ids[word] == 0 {
			w.ids[word] = int32(fixtures.FirstToken + len(w.ids))
		}
		ids = append(ids, w.ids[word])
	}
	return ids, nil
}

func (w *words) TokenizeChat(ctx context.Context, messages []row.Message) ([]int32, error) {
	if w.template != nil {
		text := w.template(messages)
		if text == "" {
			return nil, errors.New("no chat template")
		}
		return w.Tokenize(ctx, text, false)
	}
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "<%s> %s <end> ", m.Role, m.Content)
	}
	return w.Tokenize(ctx, b.String()+"<assistant>", false)
}

// text is the words of ids.
func (w *words) text(ids []int32) string {
	names := make(map[int32]string)
	for name, id := range w.ids {
		names[id] = name
	}
	var text []string
	for _, id := range ids {
		text = append(text, names[id])
	}
	return strings.Join(text, " ")
}

func params(requests int) fixtures.Params {
	return fixtures.Params{Requests: requests, InputLen: 64, OutputLen: 8, BlockSize: 16, Context: 256, Vocab: 4096, Seed: 1}
}

func question(source, context, asked string) dataset.Sample {
	return dataset.Sample{Source: source, File: source, Line: 1, Context: context, Question: asked, Answers: []string{"yes"}}
}

func TestChatTemplateAroundAContext(t *testing.T) {
	w := newWords()
	got, err := tokenize.Prompts(t.Context(), w, []dataset.Sample{question("a", "light and colour", "Which?"), question("a", "rays", "What?")},
		tokenize.Options{Format: dataset.LongBench, Params: params(2), Chat: true})
	require.NoError(t, err)
	require.Len(t, got.Prompts, 2)
	require.True(t, got.Chat)
	for i, want := range []struct{ context, after string }{{"light and colour", "Task: Which? <end> <assistant>"}, {"rays", "Task: What? <end> <assistant>"}} {
		require.Equal(t, "<system> You answer questions about the documents that you are given. <end> <user> Documents:", w.text(got.Prompts[i].Before))
		require.Equal(t, want.context, w.text(got.Prompts[i].Context))
		require.Equal(t, want.after, w.text(got.Prompts[i].After))
		require.Equal(t, []string{"yes"}, got.Prompts[i].Answers)
	}
}

func TestWithoutChatTemplate(t *testing.T) {
	w := newWords()
	got, err := tokenize.Prompts(t.Context(), w, []dataset.Sample{question("a", "rays", "What?")},
		tokenize.Options{Format: dataset.LongBench, Params: params(1)})
	require.NoError(t, err)
	require.Equal(t, int32(1), got.Prompts[0].Before[0], "the special token in front of a text")
	require.Equal(t, "You answer questions about the documents that you are given. Documents:", w.text(got.Prompts[0].Before[1:]))
	require.Equal(t, "Task: What?", w.text(got.Prompts[0].After))
	require.False(t, got.Chat)
}

// A template that loses, repeats or refuses what it is given is an error and no
// prompt of something else.
func TestUnfitTemplates(t *testing.T) {
	for name, c := range map[string]struct {
		template func([]row.Message) string
		want     string
	}{
		"none":             {func([]row.Message) string { return "" }, "no chat template (-chat=off does without)"},
		"drops the user":   {func(m []row.Message) string { return "<s> " + m[0].Content }, "keeps nothing in front of a context and behind it"},
		"says it twice":    {func(m []row.Message) string { return "<s> " + m[1].Content + " " + m[1].Content + " <e>" }, "does not have each message once"},
		"nothing in front": {func(m []row.Message) string { return strings.TrimPrefix(m[1].Content, "Documents:\n") }, "keeps nothing in front"},
		"nothing behind":   {func(m []row.Message) string { return strings.Split(m[1].Content, "\n\n")[0] }, "keeps nothing in front of a context and behind it"},
		"the context's only": {func(m []row.Message) string {
			return strings.Split(strings.TrimPrefix(m[1].Content, "Documents:\n"), "\n\n")[0]
		}, "keeps nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWords()
			w.template = c.template
			_, err := tokenize.Prompts(t.Context(), w, []dataset.Sample{question("a", "rays", "What?")},
				tokenize.Options{Format: dataset.LongBench, Params: params(1), Chat: true})
			require.ErrorContains(t, err, c.want)
		})
	}
}

// As many of each source, more of those that have more; repeats of a context
// and prompts that do not fit are left out, counted, and made up for.
func TestWhichSamples(t *testing.T) {
	long := strings.Repeat("w ", 300)
	samples := []dataset.Sample{
		question("b", "one", "q1"), question("b", "one", "q2"), question("b", long, "q3"), question("b", "two", "q4"), question("b", "three", "q5"),
		question("b", "four", "q6"), question("a", "five", "q7"),
	}
	contexts := func(o tokenize.Options) (got []string, texts *fixtures.Texts) {
		t.Helper()
		w := newWords()
		o.Format, o.Chat = dataset.LongBench, true
		texts, err := tokenize.Prompts(t.Context(), w, samples, o)
		require.NoError(t, err)
		for _, p := range texts.Prompts {
			got = append(got, p.Source+" "+w.text(p.Context))
		}
		slices.Sort(got)
		return got, texts
	}
	got, texts := contexts(tokenize.Options{Params: params(4)})
	require.Equal(t, []string{"a five", "b one", "b three", "b two"}, got)
	require.Equal(t, 1, texts.Duplicates)
	require.Equal(t, 1, texts.LeftOut)

	got, texts = contexts(tokenize.Options{Params: params(4), Repeat: true})
	require.Equal(t, []string{"a five", "b one", "b one", "b two"}, got)
	require.Zero(t, texts.Duplicates)

	got, _ = contexts(tokenize.Options{Params: params(100)})
	require.Len(t, got, 5, "all that there are")
	got, _ = contexts(tokenize.Options{Params: params(1)})
	require.Len(t, got, 1, "no more than are needed")
}

func TestOnePiece(t *testing.T) {
	w := newWords()
	custom := []dataset.Sample{{Source: "c", Prompt: "say it", Output: 5}}
	got, err := tokenize.Prompts(t.Context(), w, custom, tokenize.Options{Format: dataset.Custom, Params: params(1), Chat: true})
	require.NoError(t, err)
	require.Equal(t, "<user> say it <end> <assistant>", w.text(got.Prompts[0].Context))
	require.Equal(t, 5, got.Prompts[0].Output)
	require.Nil(t, got.Prompts[0].Before)

	got, err = tokenize.Prompts(t.Context(), w, custom, tokenize.Options{Format: dataset.Custom, Params: params(1)})
	require.NoError(t, err)
	require.Equal(t, "say it", w.text(got.Prompts[0].Context[1:]))

	chats := []dataset.Sample{
		{Source: "s", Prompt: "too short", Reply: "one two three four five"},
		{Source: "s", Prompt: "this is long enough", Reply: "yes"},
		{Source: "s", Prompt: "this one is fine", Reply: "one two three four five"},
	}
	got, err = tokenize.Prompts(t.Context(), w, chats, tokenize.Options{Format: dataset.ShareGPT, Params: params(1)})
	require.NoError(t, err)
	require.Len(t, got.Prompts, 1)
	require.Equal(t, 5, got.Prompts[0].Output, "as long as the answer was")
	require.Equal(t, 2, got.LeftOut)

	ids := []dataset.Sample{{Source: "i", File: "f", Line: 3, IDs: []int32{9, 4096}}}
	_, err = tokenize.Prompts(t.Context(), nil, ids, tokenize.Options{Format: dataset.TokenIDs, Params: params(1), Chat: true})
	require.ErrorContains(t, err, "f:3: token id 4096, and the model has 4096")
	ids[0].IDs[1] = 4095
	got, err = tokenize.Prompts(t.Context(), nil, ids, tokenize.Options{Format: dataset.TokenIDs, Params: params(1), Chat: true})
	require.NoError(t, err)
	require.Equal(t, []int32{9, 4095}, got.Prompts[0].Context)
}

// Paragraphs fill a prompt up to the length asked for and are never cut.
func TestPassages(t *testing.T) {
	var paragraphs []dataset.Sample
	for i, n := range []int{5, 10, 40, 3, 4, 9} {
		var text []string
		for j := range n {
			text = append(text, fmt.Sprintf("p%d.%d", i, j))
		}
		paragraphs = append(paragraphs, dataset.Sample{Source: "prose", Context: strings.Join(text, " ")})
	}
	w := newWords()
	p := params(3)
	p.InputLen = 32 + 32 + 12 // template and mark, two blocks, the question
	got, err := tokenize.Prompts(t.Context(), w, paragraphs, tokenize.Options{Format: dataset.Text, Params: p, Chat: true})
	require.NoError(t, err)
	var contexts []string
	for _, prompt := range got.Prompts {
		contexts = append(contexts, strings.Split(w.text(prompt.Context), " ")[0]+fmt.Sprintf(" %d", len(prompt.Context)))
		tokens, ok := prompt.Fit(p)
		require.True(t, ok)
		require.LessOrEqual(t, tokens-p.OutputLen, p.InputLen)
	}
	require.Equal(t, []string{"p0.0 22", "p5.0 9"}, contexts)
	require.Equal(t, 1, got.LeftOut)

	p.InputLen = 40
	_, err = tokenize.Prompts(t.Context(), w, paragraphs, tokenize.Options{Format: dataset.Text, Params: p, Chat: true})
	var wrong *fixtures.ParamError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, "InputLen", wrong.Param)
	require.Contains(t, wrong.Want, "at least")

	p.InputLen = 250
	_, err = tokenize.Prompts(t.Context(), w, paragraphs, tokenize.Options{Format: dataset.Text, Params: p, Chat: true})
	require.ErrorContains(t, err, "InputLen is 250, want at most 248")
}

// A tokenizer that does not know the text makes all prompts the same.
func TestUnknownText(t *testing.T) {
	w := newWords()
	w.unknown = true
	_, err := tokenize.Prompts(t.Context(), w, []dataset.Sample{question("a", strings.Repeat("rays of light ", 25), "What?")},
		tokenize.Options{Format: dataset.LongBench, Params: params(1), Chat: true})
	require.ErrorContains(t, err, "the tokenizer of the model does not know this text")
}
