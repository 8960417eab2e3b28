package run

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/row"
)

const (
	// lateAtLeast is a lateness that no machine is blamed for: half of the
	// requests must be later than that, and than a tenth of the mean interval,
	// before the schedule counts as not kept.
	lateAtLeast = 10 * time.Millisecond
	// slower is how much longer than the schedule the sends may take.
	slower = 1.1
)

// onSchedule checks that requests were sent when they were due. The client may
// be late itself, which spoils any schedule. And a server that cannot hold the
// rate makes requests wait for a slot: then the rate that was asked for was not
// there. A replay shows that wait, and no rate was asked for.
func onSchedule(phase string, timelines []row.Timeline, replay bool) []row.Finding {
	var late, waits []time.Duration
	var due, sent []time.Time
	for _, t := range timelines {
		l, ok := t.Lateness()
		if !ok {
			continue // it was not sent, which has a finding of its own
		}
		wait, _ := t.QueueWait()
		late, waits = append(late, l), append(waits, wait-l)
		due, sent = append(due, t.Scheduled), append(sent, t.Sent)
	}
	if len(sent) < 2 {
		return nil
	}
	asked := due[len(due)-1].Sub(due[0])
	took := slices.MaxFunc(sent, time.Time.Compare).Sub(sent[0])
	interval := asked / time.Duration(len(due)-1)

	if median := metric.Percentile(late, 0.5); median > max(lateAtLeast, interval/10) {
		return []row.Finding{{
			Code: row.LoadNotDelivered, Phase: phase,
			Evidence: fmt.Sprintf("half of the requests were sent more than %v after they were due and had a slot; one is due every %v", median, interval),
			Advice:   "this machine is too busy for the rate: lower it, or give the client cores of its own",
		}}
	}
	// At the end of a run that keeps up nobody waits, or only for a burst.
	last := slices.Min(waits[len(waits)-(len(waits)+3)/4:])
	if replay || asked <= 0 || float64(took) <= slower*float64(asked) || last <= 0 {
		return nil
	}
	gaps := float64(len(sent) - 1)
	return []row.Finding{{
		Code: row.LoadNotDelivered, Phase: phase,
		Evidence: fmt.Sprintf("%.3g requests per second were asked for and %.3g were sent: the last quarter of them waited at least %v for a slot, TTFT is %s from the send and %s from the schedule",
			gaps/asked.Seconds(), gaps/took.Seconds(), last.Round(time.Microsecond),
			meanOf(timelines, row.Timeline.TTFT), meanOf(timelines, row.Timeline.ScheduledTTFT)),
		Advice: "the server cannot hold this rate with so few in flight: lower -rate, or raise -concurrency to let it queue",
	}}
}

// queueDominated says that requests waited longer for a slot than the server
// took to their first tokens.
func queueDominated(timelines []row.Timeline) bool {
	var waited, total time.Duration
	for _, t := range timelines {
		wait, queued := t.QueueWait()
		ttft, answered := t.ScheduledTTFT()
		if queued && answered {
			waited += wait
			total += ttft
		}
	}
	return 2*waited > total
}

// meanOf is a mean in words, over the requests that have it.
func meanOf(timelines []row.Timeline, of func(row.Timeline) (time.Duration, bool)) string {
	var all []time.Duration
	for _, t := range timelines {
		if d, ok := of(t); ok {
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		return "unknown"
	}
	return time.Duration(metric.Mean(all)).Round(10 * time.Microsecond).String()
}
