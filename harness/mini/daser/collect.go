package daser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// previewTokens is how much of a prompt an answer shows.
const previewTokens = 32

// A summary is the answer of /infer without streaming. Times are DaseR's own,
// around its call of the engine. TokenIDs is not DaseR's and only there where
// return_token_ids was asked for.
type summary struct {
	Text       string     `json:"text"`
	Prompt     int        `json:"prompt_tokens"`
	Completion int        `json:"completion_tokens"`
	LatencyMS  float64    `json:"latency_ms"`
	TTFTMS     float64    `json:"ttft_ms"`
	Cached     bool       `json:"cache_enabled"`
	Hits       []cacheHit `json:"cache_hits"`
	Preview    string     `json:"prompt_preview"`
	TokenIDs   []int32    `json:"token_ids,omitempty"`
}

// A chunkEvent is what is read of an event of the engine's stream.
type chunkEvent struct {
	Choices []struct {
		Text         string  `json:"text"`
		TokenIDs     []int32 `json:"token_ids"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// collect reads the engine's stream to its end and answers once.
func (s *Server) collect(w http.ResponseWriter, r *http.Request, start time.Time, stream io.Reader, sum summary, prompt []int32) {
	if err := sum.read(stream, start); err != nil {
		writeError(w, http.StatusBadGateway, err.Error())
		return
	}
	if preview, err := s.engine.detokenize(r.Context(), prompt[:min(previewTokens, len(prompt))]); err == nil {
		sum.Preview = preview // without it the answer is still the answer
	}
	writeJSON(w, http.StatusOK, sum)
}

// read takes the stream apart. One without a finish reason or usage was cut.
func (sum *summary) read(stream io.Reader, start time.Time) error {
	finished, counted := false, false
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxBody)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var event chunkEvent
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return fmt.Errorf("reading the engine's stream: %w", err)
		}
		if event.Error != nil {
			return fmt.Errorf("the engine failed: %s", event.Error.Message)
		}
		for _, choice := range event.Choices {
			if sum.TTFTMS == 0 && choice.Text != "" {
				sum.TTFTMS = milliseconds(time.Since(start))
			}
			sum.Text += choice.Text
			sum.TokenIDs = append(sum.TokenIDs, choice.TokenIDs...)
			finished = finished || choice.FinishReason != nil
		}
		if event.Usage != nil {
			sum.Prompt, sum.Completion, counted = event.Usage.Prompt, event.Usage.Completion, true
		}
	}
	sum.LatencyMS = milliseconds(time.Since(start))
	if sum.TTFTMS == 0 {
		sum.TTFTMS = sum.LatencyMS // no token had a text
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading the engine's stream: %w", err)
	}
	if !finished || !counted {
		return errors.New("the engine's stream ended before its answer did")
	}
	return nil
}
