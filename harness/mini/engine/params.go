package engine

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
)

// Limits that vLLM has by default.
const (
	maxLogprobs      = 20  // --max-logprobs
	maxSaltLength    = 128 // characters of a cache_salt
	defaultMaxTokens = 16  // of completions
)

// params are what completions and chat requests have in common.
type params struct {
	sampling
	stream          bool
	includeUsage    bool
	continuousUsage bool
	returnTokenIDs  bool
	salt            string
	skips
}

// skips switch the external cache off for one request.
type skips struct{ load, save bool }

// readParams reads the common members and refuses what cannot be served.
func (e *Engine) readParams(f *fields) params {
	p := params{sampling: sampling{logprobs: -1, temperature: 1, skipSpecial: true}}
	e.checkModel(f)
	p.stream, _ = f.boolean("stream")
	p.readStreamOptions(f)
	p.returnTokenIDs, _ = f.boolean("return_token_ids")
	p.salt = readSalt(f)
	p.skips = readSkips(f)

	p.ignoreEOS, _ = f.boolean("ignore_eos")
	if skip, ok := f.boolean("skip_special_tokens"); ok {
		p.skipSpecial = skip
	}
	if t, ok := f.number("temperature"); ok {
		p.temperature = t
	}
	if p.temperature < 0 {
		f.fail(badParam("temperature", p.temperature, "temperature must be non-negative, got %v.", p.temperature))
	}
	if seed, ok := f.integer("seed"); ok {
		p.seed = uint64(seed)
	} else {
		p.seed = rand.Uint64()
	}
	if p.minTokens, _ = f.integer("min_tokens"); p.minTokens < 0 {
		f.fail(badParam("min_tokens", p.minTokens, "min_tokens must be greater than or equal to 0, got %d.", p.minTokens))
	}
	p.readStops(f, e)
	refuseUnsupported(f, p.stream)
	return p
}

func (p *params) readStreamOptions(f *fields) {
	options := f.object("stream_options")
	if options == nil {
		return
	}
	if !p.stream {
		f.fail(badParam("stream_options", nil, "Stream options can only be defined when `stream=True`."))
	}
	p.includeUsage, _ = options.boolean("include_usage")
	p.continuousUsage, _ = options.boolean("continuous_usage_stats")
	p.continuousUsage = p.continuousUsage && p.includeUsage
	if options.err != nil {
		f.fail(options.err)
	}
}

// checkModel refuses the name of another model; no name means this one.
func (e *Engine) checkModel(f *fields) {
	name, ok := f.text("model")
	if ok && name != e.config.ModelName {
		param := "model"
		f.fail(&apiError{
			Message: "The model `" + name + "` does not exist. Valid aliases: " + e.config.ModelName + ".",
			Type:    "NotFoundError", Param: &param, Code: http.StatusNotFound,
		})
	}
}

func readSalt(f *fields) string {
	salt, ok := f.text("cache_salt")
	switch {
	case !ok:
	case salt == "":
		f.fail(badParam("cache_salt", nil, "Parameter 'cache_salt' must be a non-empty string if provided."))
	case len([]rune(salt)) > maxSaltLength || strings.ContainsAny(salt, "@/\\\x00"):
		f.fail(badParam("cache_salt", nil, "Parameter 'cache_salt' must be at most %d characters and must not contain '@', '/', '\\\\', or NUL.", maxSaltLength))
	}
	return salt
}

// readSkips reads the two members of kv_transfer_params that DaseR's connector
// knows. Those of other connectors are ignored, as vLLM does.
func readSkips(f *fields) skips {
	transfer := f.object("kv_transfer_params")
	if transfer == nil {
		return skips{}
	}
	load, _ := transfer.boolean("daser_skip_load")
	save, _ := transfer.boolean("daser_skip_save")
	if transfer.err != nil {
		f.fail(transfer.err)
	}
	return skips{load, save}
}

func (p *params) readStops(f *fields, e *Engine) {
	var ids []int32
	f.into("stop_token_ids", "list of integers", &ids)
	for _, id := range ids {
		if e.tokenizer.Valid(id) { // others can never be sampled
			p.stopIDs = append(p.stopIDs, id)
		}
	}
	if one, isString := unquote(f.get("stop")); isString {
		p.stops = []string{one}
	} else {
		f.into("stop", "string or list of strings", &p.stops)
	}
	for _, s := range p.stops {
		if s == "" {
			f.fail(badParam("stop", nil, "stop cannot contain an empty string."))
		}
	}
}

// refuseUnsupported refuses what would change the answer and is not done here.
func refuseUnsupported(f *fields, stream bool) {
	if n, ok := f.integer("n"); ok && n != 1 {
		f.fail(badParam("n", n, "n must be 1 on this server, got %d.", n))
	}
	if echo, _ := f.boolean("echo"); echo {
		f.fail(badParam("echo", nil, "echo is not supported on this server."))
	}
	if s, ok := f.text("suffix"); ok && s != "" {
		f.fail(badParam("suffix", nil, "suffix is not currently supported"))
	}
	if _, ok := f.integer("prompt_logprobs"); ok {
		if stream {
			f.fail(badParam("prompt_logprobs", nil, "`prompt_logprobs` are not available when `stream=True`."))
		} else {
			f.fail(badParam("prompt_logprobs", nil, "`prompt_logprobs` are not supported on this server."))
		}
	}
}

// readLogprobs reads a number of alternatives.
func (p *params) readLogprobs(f *fields, name string, n int) {
	switch {
	case n > maxLogprobs:
		f.fail(badParam(name, n, "Requested sample logprobs of %d, which is greater than max allowed: %d", n, maxLogprobs))
	case n < 0:
		f.fail(badParam(name, n, "`%s` must be a non-negative value.", name))
	}
	p.logprobs = n
}

// readMaxTokens reads a limit of the output. min_tokens is held against it.
func (p *params) readMaxTokens(f *fields, name string) {
	n, ok := f.integer(name)
	if !ok {
		return
	}
	p.maxTokens = n
	if n < 1 {
		f.fail(badParam("max_tokens", n, "max_tokens must be at least 1, got %d.", n))
	}
	if p.minTokens > n {
		f.fail(badParam("min_tokens", p.minTokens, "min_tokens must be less than or equal to max_tokens=%d, got %d.", n, p.minTokens))
	}
}

// fit checks a prompt and returns how many tokens may be generated after it:
// what was asked for, silently cut at the context, as vLLM was observed to do.
func (e *Engine) fit(prompt []int32, maxTokens int) (int, *apiError) {
	if len(prompt) == 0 {
		return 0, badRequest("The decoder prompt cannot be empty")
	}
	for _, id := range prompt {
		if !e.tokenizer.Valid(id) {
			return 0, badRequest("Token id %d is out of vocabulary", id)
		}
	}
	context := e.model.Config().Context
	switch p := len(prompt); {
	case p > context:
		return 0, badParam("input_tokens", p, "This model's maximum context length is %d tokens. However, your prompt contains %d input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.", context, p)
	case p == context:
		return 0, badParam("max_tokens", 0, "max_tokens must be at least 1, got 0.")
	}
	return min(maxTokens, context-len(prompt)), nil
}

// unlimited is max_tokens where the endpoint sets no limit: up to the context.
const unlimited = math.MaxInt
