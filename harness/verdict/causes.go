package verdict

import "github.com/kvproof/kvproof/harness/row"

// causes are what most often lies behind a finding, most likely first.
var causes = map[row.Code]string{
	row.RequestFailed:         "a request that the server refuses; an engine that died behind a status of 200; a limit on connections",
	row.PromptDiffers:         "a gateway or connector that puts prompts together itself, or answers from the wrong request",
	row.WorkDiffers:           "a load that failed after the hit was counted, so that it was computed again; a policy of recomputing on failure that hides failures",
	row.Stalled:               "a cache server that died or deadlocked while its connector waits; a queue of stores that never empties",
	row.Truncated:             "a connection that a proxy cut, or a worker that crashed in mid-answer",
	row.ShortOutput:           "prompt and output exceed the context; a server that lowers max_tokens",
	row.PromptLength:          "a tokenizer or template between here and the model: a BOS token, text in place of ids",
	row.ColdNotCold:           "a tier that the reset did not reach; the same seed on a server that lives on; a warm-up with prompts of the plan",
	row.ResetNotHonoured:      "a reset of the engine that leaves the connector's tier alone; blocks in use; success:false under a status of 200",
	row.HitBelowOracle:        "stores that were lost, refused or not settled; eviction; keys that differ between processes (a hash seed); a chunk size other than was asked for",
	row.HitAboveOracle:        "entries of an earlier run; phantom hits after an eviction; a length that is off by one",
	row.WitnessMissing:        "a server started without the option that exports it, or an older version",
	row.WitnessDisagrees:      "a counter with another denominator than its version's law; requests that took another path; a retry that was counted",
	row.LoadShorterThanLookup: "staging memory that was too small; a load that failed in part and was recomputed or made up",
	row.CounterStuck:          "a connector that does not report to this counter; a metric that is exported and never fed",
	row.CountedTwice:          "scheduler and worker both count; each retry of the scheduler counts again",
	row.CounterReset:          "a crash and restart; an out-of-memory kill; somebody who restarted it",
	row.ImpossibleCounter:     "hits and queries that are counted in different units, tokens and blocks",
	row.NoQueries:             "the connector is not configured, was switched off at the start, or is alive and does nothing",
	row.ForeignTraffic:        "another client, a health check that sends completions, a second run on the same server",
	row.OutputDiffers:         "KV of another prompt or position; a block that was damaged, zero or not yet written; a hit that is longer than what was stored",
	row.LogprobShift:          "a low bit of stored KV, a lossy format in the store, tokens in another order inside a block; or a kernel that computes a hit otherwise",
	row.LogprobNull:           "NaN in stored KV, uninitialized memory, a scale that overflowed",
	row.KVDiffers:             "damage in the store, another document's KV, or a rotation to the wrong position",
	row.TiedTooOften:          "arithmetic that depends on the batch: several threads, split-KV attention, autotuned kernels",
	row.ControlRefused:        "a cache that could not be switched off or emptied for the control arm",
	row.StaleCache:            "keys that do not depend on the weights, and no reset when they changed",
	row.BlockSizeIgnored:      "a backend that supports other sizes only; a flag that another one overrides",
	row.LoadNotDelivered:      "a limit on connections in a client, proxy or server; a rate that nobody can hold",
	row.ChecksumDiffers:       "blocks that are laid out otherwise than was registered, or memory that another client writes",
	row.LocksLeaked:           "a reader that died between lookup and retrieve; a release with another key than the lookup's",
	row.StrayReply:            "a deadline that is too short, or a server that answers twice",
	row.UnregisterFailed:      "a server that was gone by then, or that still works on a request of this client",
	row.ServerDied:            "a crash: out of memory, a damaged cache file, an assertion",
}

// Causes says what most often lies behind a finding.
func Causes(code row.Code) string {
	if c, known := causes[code]; known {
		return c
	}
	return "not known"
}
