package run

import (
	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/artifact"
)

// replayable is the cycle as it can be run again, to leave beside its findings.
func (y *cycle) replayable() artifact.Replay {
	s := y.server
	return artifact.Replay{
		Row: s.Row, Facts: s.Facts, Engine: s.URL, Backend: s.Backend, ModelName: s.ModelName, Context: s.Context, Vocab: s.Vocab, AnyVocab: s.AnyVocab,
		TokenBytes: s.TokenBytes, BlockSize: y.params.BlockSize, Concurrency: y.config.Concurrency,
		Temperature: y.config.Sampling.Temperature, TopP: y.config.Sampling.TopP, Seed: y.config.Sampling.Seed,
		Exact: y.config.Exact, Findings: y.result.Findings, Command: y.config.Command, Plan: y.plan,
	}
}

// Replaying is the configuration that runs a recorded cycle again, as a proof:
// the same prompts in the same order, with logprobs.
func Replaying(r artifact.Replay) Config {
	return Config{
		Workload: fixtures.Workload{
			Name: r.Plan.Workload, Doc: "a recorded plan",
			Plan: func(fixtures.Params) (fixtures.Plan, error) { return r.Plan, nil },
		},
		Params: fixtures.Params{
			Requests: len(r.Plan.Requests), BlockSize: r.BlockSize, Context: r.Context, Vocab: r.Vocab, OutputLen: 1, InputLen: 1,
		},
		Concurrency: r.Concurrency, Sampling: Sampling{Temperature: r.Temperature, TopP: r.TopP, Seed: r.Seed},
		Exact: r.Exact, ProofRequests: len(r.Plan.Requests),
	}
}
