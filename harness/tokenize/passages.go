package tokenize

import (
	"context"
	"fmt"
	"strings"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/fixtures/dataset"
)

// passages makes prompts of about InputLen tokens of prose: paragraphs that
// follow each other, as many as there is room for. A paragraph that is longer
// than that is left out.
func (m *maker) passages(ctx context.Context, paragraphs []dataset.Sample) error {
	if most := m.Params.Context - m.Params.OutputLen; m.Params.InputLen > most {
		return &fixtures.ParamError{
			Workload: string(dataset.Text), Param: "InputLen", Value: m.Params.InputLen,
			Want: fmt.Sprintf("at most %d (a context of %d less %d tokens of output)", most, m.Params.Context, m.Params.OutputLen),
		}
	}
	around, err := m.template(ctx, m.question(dataset.Sample{}))
	if err != nil {
		return err
	}
	gap, err := m.tokenizer.Tokenize(ctx, "\n\n", false)
	if err != nil {
		return err
	}
	var passage fixtures.TextPrompt
	start := func() { passage = fixtures.TextPrompt{Before: around.before, After: around.after} }
	start()
	shortest := 0
	for _, paragraph := range paragraphs {
		if len(m.texts.Prompts) == m.Params.Requests {
			return nil
		}
		ids, err := m.tokenizer.Tokenize(ctx, strings.Join(strings.Fields(paragraph.Context), " "), false)
		if err != nil {
			return fmt.Errorf("%s: %w", paragraph.Where(), err)
		}
		passage.Source = paragraph.Source
		alone := passage
		alone.Context = ids
		least := m.length(alone)
		if shortest == 0 || least < shortest {
			shortest = least
		}
		if least > m.Params.InputLen {
			m.texts.LeftOut++
			continue
		}
		longer := passage
		if len(passage.Context) > 0 {
			longer.Context = append(append([]int32{}, passage.Context...), gap...)
		}
		longer.Context = append(longer.Context, ids...)
		if m.length(longer) > m.Params.InputLen {
			m.keep(passage)
			start()
			longer = alone
		}
		passage = longer
	}
	if len(passage.Context) > 0 && len(m.texts.Prompts) < m.Params.Requests {
		m.keep(passage)
	}
	if len(m.texts.Prompts) == 0 {
		return &fixtures.ParamError{
			Workload: string(dataset.Text), Param: "InputLen", Value: m.Params.InputLen,
			Want: fmt.Sprintf("at least %d (the chat template, the question and the shortest paragraph, in whole blocks)", shortest),
		}
	}
	return nil
}

func (m *maker) keep(passage fixtures.TextPrompt) {
	m.texts.Prompts = append(m.texts.Prompts, passage)
	m.Progress(len(m.texts.Prompts))
}

// length is the length of a prompt, without its output.
func (m *maker) length(p fixtures.TextPrompt) int {
	p.Output = 1
	tokens, _ := p.Fit(m.Params)
	return tokens - 1
}
