package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"

	"github.com/kvproof/kvproof/harness/mini/tokenizer"
)

// systemFingerprint tells differently configured servers apart.
func systemFingerprint(c Config) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %d %t %t", c.Model.Fingerprint(), c.BlockSize, c.NumBlocks, c.MaxSeqs, c.PrefixCaching, c.Store != nil))
	return "vllm-" + c.Version + "-" + hex.EncodeToString(sum[:4])
}

type modelList struct {
	Object string      `json:"object"`
	Data   []modelCard `json:"data"`
}

type modelCard struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Created     int64             `json:"created"`
	OwnedBy     string            `json:"owned_by"`
	Root        string            `json:"root"`
	Parent      *string           `json:"parent"`
	MaxModelLen int               `json:"max_model_len"`
	Permission  []modelPermission `json:"permission"`
}

type modelPermission struct {
	ID                 string  `json:"id"`
	Object             string  `json:"object"`
	Created            int64   `json:"created"`
	AllowCreateEngine  bool    `json:"allow_create_engine"`
	AllowSampling      bool    `json:"allow_sampling"`
	AllowLogprobs      bool    `json:"allow_logprobs"`
	AllowSearchIndices bool    `json:"allow_search_indices"`
	AllowView          bool    `json:"allow_view"`
	AllowFineTuning    bool    `json:"allow_fine_tuning"`
	Organization       string  `json:"organization"`
	Group              *string `json:"group"`
	IsBlocking         bool    `json:"is_blocking"`
}

func (e *Engine) models(w http.ResponseWriter, _ *http.Request) {
	created := e.started.Unix()
	writeJSON(w, http.StatusOK, modelList{"list", []modelCard{{
		ID: e.config.ModelName, Object: "model", Created: created, OwnedBy: "vllm",
		Root: e.config.ModelName, MaxModelLen: e.model.Config().Context,
		Permission: []modelPermission{{
			ID: "modelperm-" + e.weights.Load().Fingerprint(), Object: "model_permission", Created: created,
			AllowSampling: true, AllowLogprobs: true, AllowView: true, Organization: "*",
		}},
	}}})
}

func (e *Engine) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Version string `json:"version"`
	}{e.config.Version})
}

// health says nothing about a store behind the engine, as observed.
func (e *Engine) health(w http.ResponseWriter, _ *http.Request) {
	if e.healthy() != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// reset empties the prefix cache. While requests run it answers success:false
// under HTTP 200, as observed.
func (e *Engine) reset(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	external, err := queryBool(query.Get("reset_external"))
	running, runningErr := queryBool(query.Get("reset_running_requests"))
	switch {
	case err != nil:
		writeError(w, badParam("reset_external", query.Get("reset_external"), "reset_external must be true or false."))
		return
	case runningErr != nil || running:
		writeError(w, badParam("reset_running_requests", query.Get("reset_running_requests"),
			"Running requests are never preempted on this server: wait until they end, then reset."))
		return
	}
	success, err := e.resetCaches(r.Context(), external)
	if err != nil {
		e.log.Print(err)
	}
	writeJSON(w, http.StatusOK, struct {
		Success bool `json:"success"`
	}{success})
}

func queryBool(s string) (bool, error) {
	if s == "" {
		return false, nil
	}
	v, err := strconv.ParseBool(s)
	if err != nil {
		return false, fmt.Errorf("reading the truth value %q: %w", s, err)
	}
	return v, nil
}

func (e *Engine) tokenize(w http.ResponseWriter, r *http.Request) {
	f, refused := readFields(r)
	if refused != nil {
		writeError(w, refused)
		return
	}
	e.checkModel(f)
	text, ok := f.text("prompt")
	if f.get("messages") != nil {
		generation := true
		if g, given := f.boolean("add_generation_prompt"); given {
			generation = g
		}
		text, ok = tokenizer.Chat(readMessages(f), generation), true
	}
	withStrings, _ := f.boolean("return_token_strs")
	if !ok {
		f.missing("prompt")
	}
	if f.err != nil {
		writeError(w, f.err)
		return
	}
	ids := e.tokenizer.Encode(text)
	answer := struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []int32  `json:"tokens"`
		TokenStrs   []string `json:"token_strs"`
	}{Count: len(ids), MaxModelLen: e.model.Config().Context, Tokens: ids}
	if withStrings {
		answer.TokenStrs = []string{}
		for _, id := range ids {
			answer.TokenStrs = append(answer.TokenStrs, e.tokenizer.Word(id))
		}
	}
	writeJSON(w, http.StatusOK, answer)
}

// detokenize keeps special tokens, so that it undoes tokenize.
func (e *Engine) detokenize(w http.ResponseWriter, r *http.Request) {
	f, refused := readFields(r)
	if refused != nil {
		writeError(w, refused)
		return
	}
	e.checkModel(f)
	var ids []int32
	if !f.into("tokens", "list of integers", &ids) {
		f.missing("tokens")
	}
	for _, id := range ids {
		if !e.tokenizer.Valid(id) {
			f.fail(badRequest("Token id %d is out of vocabulary", id))
		}
	}
	if f.err != nil {
		writeError(w, f.err)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Prompt string `json:"prompt"`
	}{e.tokenizer.Decode(ids, false)})
}
