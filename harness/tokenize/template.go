package tokenize

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvproof/kvproof/harness/row"
)

// What stands around a context.
const (
	system  = "You answer questions about the documents that you are given."
	heading = "Documents:\n"
	task    = "\n\nTask: "
)

// A template is a prompt about a document without the document.
type template struct{ before, after []int32 }

// stand-ins for a context, which begin and end differently in any tokenizer.
var standIns = [2]string{"Alpha 1", "zebra ?"}

// template is what stands around a context in front of a question. A server
// tells token ids only, not where in them a context went, so it is asked with
// two contexts: what the prompts have in common at their start and at their
// end is the template.
func (m *maker) template(ctx context.Context, question string) (t template, err error) {
	if known, ok := m.templates[question]; ok {
		return known, nil
	}
	if m.Chat {
		t, err = m.chatTemplate(ctx, question)
	} else {
		t, err = m.plainTemplate(ctx, question)
	}
	if err == nil {
		m.templates[question] = t
	}
	return t, err
}

func (m *maker) plainTemplate(ctx context.Context, question string) (t template, err error) {
	if t.before, err = m.tokenizer.Tokenize(ctx, system+"\n\n"+heading, true); err != nil {
		return t, err
	}
	t.after, err = m.tokenizer.Tokenize(ctx, task+question+"\n", false)
	return t, err
}

func (m *maker) chatTemplate(ctx context.Context, question string) (template, error) {
	var asked [2][]int32
	for i, context := range standIns {
		var err error
		asked[i], err = m.tokenizer.TokenizeChat(ctx, []row.Message{
			{Role: "system", Content: system}, {Role: "user", Content: heading + context + task + question},
		})
		if err != nil {
			return template{}, fmt.Errorf("applying the model's chat template: %w (-chat=off does without)", err)
		}
	}
	short := min(len(asked[0]), len(asked[1]))
	before := 0
	for before < short && asked[0][before] == asked[1][before] {
		before++
	}
	after := 0
	for after < short-before && asked[0][len(asked[0])-1-after] == asked[1][len(asked[1])-1-after] {
		after++
	}
	if before == 0 || after == 0 {
		return template{}, errors.New("the model's chat template keeps nothing in front of a context and behind it: -chat=off does without")
	}
	// A template that repeats or reorders what it is given has more between.
	alone, err := m.tokenizer.Tokenize(ctx, standIns[0], false)
	if err != nil {
		return template{}, err
	}
	const seams = 2 // tokens that a context may make with its neighbours
	if between := len(asked[0]) - before - after; between < 1 || between > len(alone)+seams {
		return template{}, fmt.Errorf("the model's chat template makes %d tokens of a context of %d: it does not have each message once", between, len(alone))
	}
	return template{asked[0][:before], asked[0][len(asked[0])-after:]}, nil
}
