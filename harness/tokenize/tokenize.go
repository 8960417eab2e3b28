// Package tokenize turns the samples of a data set into prompts of token ids,
// by the tokenizer and the chat template of the model itself: it asks a server
// that runs it.
//
//	texts, err := tokenize.Prompts(ctx, server.Tokenizer, samples, tokenize.Options{Format: dataset.IMDB, Params: params, Chat: true})
//
// The pieces of a prompt about a document (the template before the context,
// the context, what follows it) are tokenized apart, so that a plan can pad
// them to whole blocks; that rule and the shape of the prompt are those of
// DaseR's benchmark, the wording is ours.
package tokenize

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/fixtures/dataset"
	"github.com/kvproof/kvproof/harness/row"
)

// Options say how to make prompts.
type Options struct {
	Format dataset.Format
	Params fixtures.Params // decides how many are needed and what fits
	Chat   bool            // by the model's chat template
	Repeat bool            // keep samples about a context that an earlier one had

	Progress func(done int) // nil: nobody watches
}

// DefaultChat says whether the prompts of a format go through the chat template
// where nobody says: as in the benchmarks that the formats come from.
func DefaultChat(format dataset.Format) bool { return format != dataset.ShareGPT }

// fewest is the least tokens of a prompt and of an answer of a conversation
// that is worth asking, as in vllm bench serve.
const fewest = 4

// Prompts tokenizes samples until there are as many prompts as the parameters
// ask for, as many from each source as from the others where they have them.
func Prompts(ctx context.Context, t row.Tokenizer, samples []dataset.Sample, o Options) (*fixtures.Texts, error) {
	if o.Progress == nil {
		o.Progress = func(int) {}
	}
	m := &maker{Options: o, tokenizer: t, texts: &fixtures.Texts{Chat: o.Chat && o.Format != dataset.TokenIDs}, seen: make(map[string]bool), templates: make(map[string]template)}
	if o.Format == dataset.Text {
		if err := m.passages(ctx, samples); err != nil {
			return nil, err
		}
	} else if err := m.each(ctx, samples); err != nil {
		return nil, err
	}
	return m.texts, m.checkKnown()
}

// A maker makes the prompts of one data set.
type maker struct {
	Options
	tokenizer row.Tokenizer
	texts     *fixtures.Texts
	seen      map[string]bool // contexts
	templates map[string]template
}

// each takes so many samples of each source in turn; sources that have fewer
// are made up for by the others.
func (m *maker) each(ctx context.Context, samples []dataset.Sample) error {
	var names []string
	waiting := make(map[string][]dataset.Sample)
	for _, s := range samples {
		if waiting[s.Source] == nil {
			names = append(names, s.Source)
		}
		waiting[s.Source] = append(waiting[s.Source], s)
	}
	taken := make(map[string]int)
	for quota := (m.Params.Requests + len(names) - 1) / len(names); ; quota = m.Params.Requests {
		for _, name := range names {
			for len(waiting[name]) > 0 && taken[name] < quota && (quota < m.Params.Requests || len(m.texts.Prompts) < m.Params.Requests) {
				sample := waiting[name][0]
				waiting[name] = waiting[name][1:]
				ok, err := m.add(ctx, sample)
				if err != nil {
					return fmt.Errorf("%s: %w", sample.Where(), err)
				}
				if ok {
					taken[name]++
				}
			}
		}
		if quota >= m.Params.Requests || len(m.texts.Prompts) >= m.Params.Requests {
			return nil
		}
	}
}

// add makes the prompt of a sample; false if it is left out.
func (m *maker) add(ctx context.Context, s dataset.Sample) (bool, error) {
	if key := cmp.Or(s.Context, s.Prompt, fmt.Sprint(s.IDs)); !m.Repeat {
		if m.seen[key] {
			m.texts.Duplicates++
			return false, nil
		}
		m.seen[key] = true
	}
	prompt, err := m.prompt(ctx, s)
	if err != nil {
		return false, err
	}
	if _, fits := prompt.Fit(m.Params); !fits || s.Reply != "" && (len(prompt.Context) < fewest || prompt.Output < fewest) {
		m.texts.LeftOut++
		return false, nil
	}
	m.texts.Prompts = append(m.texts.Prompts, prompt)
	m.Progress(len(m.texts.Prompts))
	return true, nil
}

func (m *maker) prompt(ctx context.Context, s dataset.Sample) (p fixtures.TextPrompt, err error) {
	p = fixtures.TextPrompt{Source: s.Source, Output: s.Output, Answers: s.Answers}
	switch m.Format {
	case dataset.TokenIDs:
		p.Context = s.IDs
		if last := slices.Max(s.IDs); int(last) >= m.Params.Vocab {
			return p, fmt.Errorf("token id %d, and the model has %d", last, m.Params.Vocab)
		}
	case dataset.Custom, dataset.ShareGPT:
		if m.Chat {
			p.Context, err = m.tokenizer.TokenizeChat(ctx, []row.Message{{Role: "user", Content: s.Prompt}})
		} else {
			p.Context, err = m.tokenizer.Tokenize(ctx, s.Prompt, true)
		}
		if err == nil && s.Reply != "" {
			var reply []int32
			reply, err = m.tokenizer.Tokenize(ctx, s.Reply, false)
			p.Output = len(reply)
		}
	default:
		var around template
		if around, err = m.template(ctx, m.question(s)); err != nil {
			return p, err
		}
		p.Before, p.After = around.before, around.after
		p.Context, err = m.tokenizer.Tokenize(ctx, s.Context, false)
	}
	if err == nil && len(p.Context) == 0 && p.Before == nil {
		err = fmt.Errorf("the prompt %q has no token", shortened(s.Prompt))
	}
	return p, err
}

func (m *maker) question(s dataset.Sample) string {
	switch m.Format {
	case dataset.IMDB:
		return "Is this review positive or negative? Answer with one word."
	case dataset.Text:
		return "Summarise this passage in one sentence."
	default:
		return s.Question
	}
}

// checkKnown refuses text that the model's tokenizer does not know: prompts
// that are mostly one unknown token hit each other's cache entries and say
// nothing about anything.
func (m *maker) checkKnown() error {
	count := make(map[int32]int)
	total := 0
	for _, p := range m.texts.Prompts {
		for _, id := range p.Context {
			count[id]++
			total++
		}
	}
	for id, n := range count {
		if m.Format != dataset.TokenIDs && total >= 64 && n > total/2 {
			return fmt.Errorf("%d of %d tokens of the data are token %d: the tokenizer of the model does not know this text", n, total, id)
		}
	}
	return nil
}

func shortened(s string) string {
	if words := strings.Fields(s); len(words) > 8 {
		return strings.Join(words[:8], " ") + " …"
	}
	return s
}
