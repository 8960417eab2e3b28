// Package fault breaks the miniature stack on purpose, at the wire or in the
// store and never in a verdict, so that tests can show that the suite sees it.
//
//	injector := fault.NewInjector(m, 128)
//	e, err := engine.New(engine.Config{Store: injector.WrapStore(s), ...})
//	server := &http.Server{Handler: injector.WrapHandler(e.Handler())}
//	err = injector.Plant(fault.BitFlip) // from now on
//	injector.Clear(fault.BitFlip)       // healthy again
//
// Each fault says which findings it must give; they are plain text here,
// because the miniature stack knows nothing of the harness that judges it. This
// is the only package of the miniature stack that waits on time.
package fault

import (
	"fmt"
	"slices"
	"strings"
)

// A Fault is one way to be broken. The list is closed.
type Fault string

// Faults in the store, seen by the engine through its kv.Store. Those that
// damage KV do so in what a load delivers, each time, as if the stored bytes
// were damaged. Keys carry their position, so attention hardly cares about the
// order of what it reads: SwappedBlocks and TokensPermuted move logprobs in
// their last bits and leave most tokens alone, as observed on real vLLM.
const (
	BitFlip          Fault = "bit-flip"
	SwappedBlocks    Fault = "swapped-blocks"
	ZeroBlock        Fault = "zero-block"
	TokensPermuted   Fault = "tokens-permuted"
	NaN              Fault = "nan"
	OtherRequest     Fault = "other-request"
	HitPlusOneToken  Fault = "hit-plus-one-token"
	HitMinusOneToken Fault = "hit-minus-one-token"
	HitPlusOneBlock  Fault = "hit-plus-one-block"
	HitMinusOneBlock Fault = "hit-minus-one-block"
	FullHitSkipsLast Fault = "full-hit-skips-last"
	LostStore        Fault = "lost-store"
	LateStore        Fault = "late-store"
	SlowLoad         Fault = "slow-load"
	FailedStore      Fault = "failed-store"
	SwappedObjects   Fault = "swapped-objects"
	SecondHit        Fault = "second-hit"
	IdleStore        Fault = "idle-store"
)

// Faults on the engine's HTTP.
const (
	ResetNoop        Fault = "reset-noop"
	ResetFalse       Fault = "reset-false"
	StuckCounter     Fault = "stuck-counter"
	StuckCounterZero Fault = "stuck-counter-zero"
	StuckCounterOne  Fault = "stuck-counter-one"
	DoubleCount      Fault = "double-count"
	CounterReset     Fault = "counter-reset"
	ErrorEvent       Fault = "error-event"
	Truncate         Fault = "truncate"
	Stall            Fault = "stall"
	Die              Fault = "die"
	DropRequests     Fault = "drop-requests"
	ShortOutput      Fault = "short-output"
	PromptLength     Fault = "prompt-length"
	DroppedPrompt    Fault = "dropped-prompt"
	SlowFirstEmpty   Fault = "slow-first-empty"
	SilentUsage      Fault = "silent-usage"
	ForeignTraffic   Fault = "foreign-traffic"
	Restart          Fault = "restart"
	StaleWeights     Fault = "stale-weights"
)

// Faults in the DaseR server, which only the rows daser-prefix and daser-chunk
// have. Chunk reuse changes outputs by itself, so there only the check of the
// delivered KV can tell damage: its finding is kv-differs.
const (
	PartialChunk  Fault = "partial-chunk"
	OtherDocument Fault = "other-document"
	EarlyAck      Fault = "early-ack"
	EvictionAsHit Fault = "eviction-as-hit"
	EarlyDrain    Fault = "early-drain"

	ReorderedDocuments Fault = "reordered-documents"
)

// Faults that cannot be planted in a running stack: its engine is started with
// another block size than was asked for, or computes again what it loaded.
// NumericNoise is no fault of a cache, but what makes those hard to see.
const (
	BlockSizeIgnored Fault = "block-size-ignored"
	RecomputedHit    Fault = "recomputed-hit"
	NumericNoise     Fault = "numeric-noise"
)

type place int

const (
	inStore place = iota
	onWire
	inDaser
	atStart
)

type entry struct {
	fault    Fault
	place    place
	findings []string // the first that is found is one of these; none: it must not mislead
	about    string
}

// The order is that of All and of help texts.
var entries = []entry{
	{BitFlip, inStore, []string{"output-differs", "logprob-shift"}, "one exponent bit of one value in a loaded block is flipped: the value doubles or halves"},
	{SwappedBlocks, inStore, []string{"output-differs", "logprob-shift"}, "two neighbouring loaded blocks change places (hits of two blocks and more)"},
	{ZeroBlock, inStore, []string{"output-differs", "logprob-shift"}, "one loaded block is all zero"},
	{TokensPermuted, inStore, []string{"output-differs", "logprob-shift"}, "the tokens of one loaded block come in reverse order"},
	{NaN, inStore, []string{"logprob-null"}, "one value of a loaded block is not a number"},
	{OtherRequest, inStore, []string{"output-differs", "logprob-shift"}, "a load delivers the KV of the load before it that was of another prompt"},
	{HitPlusOneToken, inStore, []string{"hit-above-oracle"}, "a hit is reported one token too long, the KV of that token is zero (a full hit stays as it is)"},
	{HitMinusOneToken, inStore, []string{"hit-below-oracle"}, "a hit is reported one token too short"},
	{HitPlusOneBlock, inStore, []string{"hit-above-oracle"}, "a hit is reported one chunk too long, at most the prompt, the KV beyond is zero (a full hit stays as it is)"},
	{HitMinusOneBlock, inStore, []string{"hit-below-oracle"}, "a hit is reported one chunk too short"},
	{FullHitSkipsLast, inStore, []string{"output-differs", "logprob-shift"}, "where the whole prompt is found, the last token that is loaded has no KV (prompts of whole chunks)"},
	{LostStore, inStore, []string{"hit-below-oracle"}, "a store is acknowledged and nothing is kept"},
	{LateStore, inStore, []string{"hit-below-oracle"}, "a store is acknowledged and written only when the next one comes; the status says quiet"},
	{FailedStore, inStore, []string{"output-differs", "logprob-shift"}, "a store fails half way and its entry stays visible: the second half of what a load delivers is zero"},
	{SwappedObjects, inStore, []string{"output-differs", "logprob-shift"}, "the stored KV of two prompts is exchanged: each is served the other's"},
	{SecondHit, inStore, []string{"output-differs", "logprob-shift"}, "the first load of a prompt is right and wears what is stored: in each later one of the same prompt a value doubles or halves"},
	{IdleStore, inStore, []string{"no-queries"}, "the store looks alive and does nothing: it is never asked and never given anything"},
	{SlowLoad, inStore, nil, "each load takes 10 ms longer: hits pay later, and no number is wrong"},
	{ResetNoop, onWire, []string{"reset-not-honoured"}, "a reset of the cache answers success and does nothing"},
	{ResetFalse, onWire, []string{"reset-not-honoured"}, `a reset answers 200 with {"success":false} and does nothing`},
	{StuckCounter, onWire, []string{"counter-stuck"}, "the engine's hit counters stay at the value they had first"},
	{StuckCounterZero, onWire, []string{"counter-stuck"}, "the engine's hit counters stay at 0"},
	{StuckCounterOne, onWire, []string{"counter-stuck"}, "the engine's hit counters stay at 1"},
	{DoubleCount, onWire, []string{"counted-twice"}, "the engine's hit counters count every hit twice"},
	{CounterReset, onWire, []string{"counter-reset"}, "the engine's counters start anew whenever they have moved, as after a restart"},
	{ErrorEvent, onWire, []string{"request-failed"}, "a stream ends in an error event under HTTP 200, then [DONE]"},
	{Truncate, onWire, []string{"truncated"}, "the connection is cut before the finish reason"},
	{Stall, onWire, []string{"stalled"}, "a stream falls silent and stays open until the client leaves"},
	{Die, onWire, []string{"server-died"}, "in mid-stream the engine is gone: connections break, health is 503"},
	{DropRequests, onWire, []string{"request-failed"}, "every third completion gets no answer, its connection is closed"},
	{ShortOutput, onWire, []string{"short-output"}, "half of the output that was asked for, with finish reason length"},
	{PromptLength, onWire, []string{"prompt-length"}, "usage reports one prompt token too many"},
	{DroppedPrompt, onWire, []string{"prompt-length"}, "the last token of the prompt is dropped before the engine sees it"},
	{SlowFirstEmpty, onWire, nil, "an empty chunk comes before the first token, which is late: time to first token must be the token's"},
	{SilentUsage, onWire, []string{"witness-missing"}, "usage does not say how many prompt tokens were cached"},
	{ForeignTraffic, onWire, []string{"foreign-traffic"}, "somebody else asks the same server: a request of theirs for each of ours"},
	{Restart, onWire, []string{"counter-reset"}, "the engine's counters start anew when nothing runs, as after a restart between two passes"},
	{StaleWeights, onWire, []string{"stale-cache"}, "new weights are loaded and KV of the old ones stays in the cache"},
	{PartialChunk, inDaser, []string{"kv-differs", "output-differs", "logprob-shift"}, "the second half of the last chunk of a load is another chunk's"},
	{OtherDocument, inDaser, []string{"kv-differs", "output-differs", "logprob-shift"}, "the last chunk of a load is another chunk's as a whole"},
	{EarlyAck, inDaser, []string{"load-shorter-than-lookup", "kv-differs", "output-differs", "logprob-shift"}, "a store is committed at once and its bytes are written only when the next one comes; until then a load delivers zeros"},
	{EvictionAsHit, inDaser, []string{"load-shorter-than-lookup", "kv-differs", "output-differs", "logprob-shift", "hit-above-oracle", "cold-not-cold"}, "chunks that were evicted are still found, and a load delivers zeros for them"},
	{EarlyDrain, inDaser, []string{"hit-below-oracle"}, "/drain answers at once, while the last store is written only when another comes or an upload waits for it (prefix mode: uploads do not depend on /drain)"},
	{ReorderedDocuments, inDaser, []string{"prompt-differs"}, "/infer with the cache on puts the documents of a prompt together in reverse order"},
	{RecomputedHit, atStart, []string{"work-differs"}, "what the store delivered is reported as a hit and computed again all the same"},
	{NumericNoise, atStart, nil, "logits move a little, otherwise in each answer, as where arithmetic depends on the batch: with controls a difference at a near-tie is none of the cache"},
	{BlockSizeIgnored, atStart, []string{"block-size-ignored"}, "the engine really runs with another block size, and says so"},
}

// All returns every fault that needs no more than an engine with a store, in a
// fixed order. Those of the DaseR server are in Daser.
func All() []Fault { return list(func(e entry) bool { return e.place != inDaser }) }

// Daser returns the faults of the DaseR server, in a fixed order.
func Daser() []Fault { return list(func(e entry) bool { return e.place == inDaser }) }

func list(wanted func(entry) bool) []Fault {
	var faults []Fault
	for _, e := range entries {
		if wanted(e) {
			faults = append(faults, e.fault)
		}
	}
	return faults
}

// Parse reads a comma list of faults; an empty list is none.
func Parse(list string) ([]Fault, error) {
	if list == "" {
		return nil, nil
	}
	var faults []Fault
	for name := range strings.SplitSeq(list, ",") {
		f := Fault(strings.TrimSpace(name))
		if err := f.check(); err != nil {
			return nil, err
		}
		if slices.Contains(faults, f) {
			return nil, fmt.Errorf("fault %q is named twice", f)
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// Join is the list that Parse reads.
func Join(faults []Fault) string {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = string(f)
	}
	return strings.Join(names, ",")
}

// About says what is broken, in a sentence.
func (f Fault) About() string { return f.entry().about }

// Findings are the codes one of which must be the first thing that is found
// where the fault can act: a row with a cache, prompts that hit. None means that
// nothing may come of it, and no number may be misled by it.
func (f Fault) Findings() []string { return slices.Clone(f.entry().findings) }

// NeedsStore says that the fault acts between engine and store.
func (f Fault) NeedsStore() bool { return f.entry().place == inStore }

// NeedsDaser says that the fault acts in the DaseR server.
func (f Fault) NeedsDaser() bool { return f.entry().place == inDaser }

// AtStart says that the fault must be known when the stack starts.
func (f Fault) AtStart() bool { return f.entry().place == atStart }

func (f Fault) entry() entry {
	i := slices.IndexFunc(entries, func(e entry) bool { return e.fault == f })
	if i < 0 {
		return entry{place: -1}
	}
	return entries[i]
}

func (f Fault) check() error {
	if f.entry().place >= 0 {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = string(e.fault)
	}
	return fmt.Errorf("fault %q is not known; there are %s", f, strings.Join(names, ", "))
}
