package run

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/row"
)

// repro collects what is needed to see a finding again: the ids that were
// sent, a curl line, how this process was called, and both outputs.
func (y *cycle) repro(f row.Finding) artifact.Repro {
	repro := artifact.Repro{Finding: f, Request: f.Request, Outputs: make(map[string]any), Command: y.config.Command}
	for _, pass := range []Pass{y.result.Cold, y.result.Warm, y.result.Reference} {
		for i, request := range pass.Requests {
			if !sameRequest(request.ID, pass.Phase, f.Request, f.Phase) {
				continue
			}
			if repro.Prompt == nil || request.ID == f.Request {
				repro.Prompt, repro.Curl = request.Prompt, curl(y.server.URL, request)
			}
			if i < len(pass.Timelines) {
				repro.Outputs[pass.Phase] = artifact.NewRequest(y.plan.Workload, pass.Plan.Requests[i], pass.Timelines[i])
			}
		}
	}
	return repro
}

// sameRequest says whether two ids are the same request of the plan, each as its
// phase sent it.
func sameRequest(a, phaseA, b, phaseB string) bool {
	without := func(id, phase string) string { return strings.Replace(id, "-"+phase+"-", "-", 1) }
	return b != "" && without(a, phaseA) == without(b, phaseB)
}

// curl asks the engine the same prompt, with logprobs. A row that asks through
// another server in front of it is asked past that one.
func curl(url string, r row.Request) string {
	fields := map[string]any{
		"prompt": r.Prompt, "max_tokens": r.MaxTokens, "temperature": r.Temperature, "seed": r.Seed, "ignore_eos": r.IgnoreEOS,
		"logprobs": proofLogprobs, "return_token_ids": true,
	}
	if r.CacheSalt != "" {
		fields["cache_salt"] = r.CacheSalt
	}
	if len(r.Stop) > 0 {
		fields["stop_token_ids"] = r.Stop
	}
	body, err := json.Marshal(fields)
	if err != nil { // numbers and booleans only
		panic(fmt.Sprintf("encoding a request: %v", err))
	}
	return fmt.Sprintf("curl -s %s/v1/completions -H 'Content-Type: application/json' -d '%s'", url, body)
}
