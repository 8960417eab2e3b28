// Package openai is the client that measures: it sends completions to an
// OpenAI-compatible server, reads the stream by the standard and returns a
// timeline in which every chunk is stamped at the read that completed it.
//
//	client := openai.New(openai.Config{BaseURL: "http://127.0.0.1:8000", Model: "tiny", Concurrency: 16})
//	defer client.Close()
//	t := client.Do(ctx, row.Request{ID: "r-1", Prompt: ids, MaxTokens: 64, IgnoreEOS: true})
//	ttft, ok := t.TTFT()       // ok is false if no token came
//	tokens, source := openai.OutputTokens(t)
//
// Clocks are monotonic and start just before the request goes to the
// transport, so getting a connection is inside TTFT, as in `vllm bench serve`;
// ConnectTime says how much that was. Encoding the request is outside.
// Nothing is decoded while a stream runs: the reader cuts events and stamps
// them, JSON comes after the last byte.
//
// A timeline always has a status, and an error text unless that is OK. There
// is no deadline for a whole request, but one for each of its phases: the
// connection, the first byte, and each wait between bytes. Nothing is
// repeated except what net/http proves never to have been sent.
//
// Shapes of requests, chunks, errors and admin calls are those observed on
// vLLM 0.32.0 (testdata/captures holds what it sent); other servers' variants
// of the event stream are read too.
package openai
