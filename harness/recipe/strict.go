package recipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

const batchInvariantFact = "batch-invariant"

// batchInvariant says for the manifest whether vLLM computes the same bits
// whatever the batch, as far as it can be told: GET /server_info has its
// environment where VLLM_SERVER_DEV_MODE=1 is set (vLLM 0.32.0).
func batchInvariant(ctx context.Context, engine string, client *http.Client) string {
	unknown := func(err error) string {
		return fmt.Sprintf("not known, and taken for granted by -strict: %v", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, engine+"/server_info?config_format=json", nil)
	if err != nil {
		return unknown(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return unknown(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return unknown(fmt.Errorf("GET /server_info: HTTP %d", response.StatusCode))
	}
	var info struct {
		Environment struct {
			BatchInvariant *bool `json:"VLLM_BATCH_INVARIANT"`
		} `json:"vllm_env"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, 4<<20)).Decode(&info); err != nil {
		return unknown(fmt.Errorf("GET /server_info: %w", err))
	}
	switch on := info.Environment.BatchInvariant; {
	case on == nil:
		return unknown(errors.New("GET /server_info has no VLLM_BATCH_INVARIANT"))
	case *on:
		return "on: GET /server_info has VLLM_BATCH_INVARIANT"
	}
	return "off: GET /server_info has VLLM_BATCH_INVARIANT=0, so that -strict may call out what is the batch's"
}
