package openai

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/kvproof/kvproof/harness/row"
)

// fill decodes a recording into the timeline. It sets the status that the
// bytes alone give: OK, StreamError or CutOff.
//
//   - TTFT stands at the first chunk with a token of any kind: text, content,
//     reasoning, tool call, or ids that decode to nothing. A role, an empty
//     delta and the usage chunk are none.
//   - Finished means a finish reason; a [DONE] that is missing after it is a
//     warning, one without it is no end.
//   - The first error event or unreadable event ends the reading. What came
//     before it is kept; whether it counts is for the pass to say.
func fill(t *row.Timeline, rec recording) {
	t.FirstByte, t.End = rec.firstByte, rec.end
	var b builder
	var failure error
	t.Chunks, t.Tokens = make([]row.Chunk, 0, len(rec.events)), make([]int32, 0, len(rec.events))
	fast := fastReaders.Get().(*fastReader)
	defer fastReaders.Put(fast)
	for i, event := range rec.events {
		if len(bytes.TrimSpace(event.Data)) == 0 {
			continue // a keep-alive
		}
		p, err := decode(event, fast)
		if err == nil {
			err = b.add(t, event, p)
		}
		if err != nil {
			failure = describe(i, event, err)
			break
		}
	}
	b.finish(t)
	switch {
	case failure != nil:
		t.Status, t.Err = row.StreamError, failure.Error()
	case t.FinishReason == "":
		t.Status, t.Err = row.CutOff, cutOff(rec, len(t.Chunks))
	default:
		t.Status = row.OK
		t.Warnings = warnings(t, rec)
	}
}

var fastReaders = sync.Pool{New: func() any { return new(fastReader) }}

// describe names the event, unless the server itself says what is wrong.
func describe(index int, event Event, err error) error {
	var said *ServerError
	if errors.As(err, &said) {
		return fmt.Errorf("error event in the stream: %w", err)
	}
	return fmt.Errorf("decoding event %d of the stream: %w: %s", index+1, err, event.Data)
}

func cutOff(rec recording, chunks int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "stream ended without a finish reason after %d events, %d with output", len(rec.events), chunks)
	if rec.done {
		b.WriteString(", with [DONE]")
	}
	if rec.held > 0 {
		fmt.Fprintf(&b, ", in the middle of another (%d bytes)", rec.held)
	}
	if rec.err != nil {
		fmt.Fprintf(&b, ": %v", rec.err)
	}
	return b.String()
}

// A builder holds what is joined from several events.
type builder struct {
	text, reasoning strings.Builder
	calls           []row.ToolCall
}

func (b *builder) add(t *row.Timeline, event Event, p payload) error {
	b.usage(t, p.Usage)
	for _, c := range p.Choices {
		text := c.Text + c.Delta.Content
		b.text.WriteString(text)
		b.reasoning.WriteString(c.Delta.reasoning())
		b.tools(c.Delta.ToolCalls)
		ids := c.TokenIDs
		if ids == nil {
			ids = c.Logprobs.ids()
		}
		t.Tokens = append(t.Tokens, ids...)
		t.Prompt = append(t.Prompt, c.PromptIDs...)
		t.Logprobs = append(t.Logprobs, c.Logprobs.tokens()...)
		if c.FinishReason != "" {
			t.FinishReason = c.FinishReason
		}
		if c.carriesToken() {
			t.LastToken = event.At
			if t.FirstToken.IsZero() {
				t.FirstToken = event.At
			}
			t.Chunks = append(t.Chunks, row.Chunk{At: event.At, Tokens: len(ids), Text: text, Read: event.Read})
		}
		if text != "" && t.FirstContent.IsZero() {
			t.FirstContent = event.At
		}
		if c.FinishReason == "error" || c.FinishReason == "abort" {
			return fmt.Errorf("the server gave up: finish reason %q", c.FinishReason)
		}
	}
	return nil
}

// usage takes the last account of the stream; with continuous usage only the
// last one has the cached tokens. One without both counts is no account.
func (b *builder) usage(t *row.Timeline, u *usage) {
	if u == nil || u.PromptTokens == nil || u.CompletionTokens == nil {
		return
	}
	next := row.Usage{PromptTokens: *u.PromptTokens, CompletionTokens: *u.CompletionTokens, CachedTokens: u.cached()}
	if next.CachedTokens == nil && t.Usage != nil {
		next.CachedTokens = t.Usage.CachedTokens
	}
	t.Usage = &next
}

func (b *builder) tools(calls []toolCall) {
	for _, call := range calls {
		for len(b.calls) <= call.Index {
			b.calls = append(b.calls, row.ToolCall{})
		}
		joined := &b.calls[call.Index]
		joined.Name += call.Function.Name
		joined.Arguments += call.Function.Arguments
	}
}

func (b *builder) finish(t *row.Timeline) {
	t.Text, t.Reasoning, t.ToolCalls = b.text.String(), b.reasoning.String(), b.calls
}

// warnings are those of a stream that ended well enough.
func warnings(t *row.Timeline, rec recording) []row.Warning {
	var out []row.Warning
	warn := func(when bool, w row.Warning) {
		if when {
			out = append(out, w)
		}
	}
	warn(!rec.done, row.MissingDone)
	warn(len(t.Chunks) == 0, row.NoVisibleToken)
	warn(coalesced(t.Chunks), row.Coalesced)
	warn(t.Usage == nil, row.MissingUsage)
	if t.Usage != nil {
		cached := t.Usage.CachedTokens
		warn(cached != nil && *cached > t.Usage.PromptTokens, row.CachedGTPrompt)
		warn(len(t.Tokens) > 0 && len(t.Tokens) != t.Usage.CompletionTokens, row.TokensMismatch)
	}
	return out
}
