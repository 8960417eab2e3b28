package cachebench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
)

// The server's counters of lookups. They move when the result of a lookup is
// taken. Source: observed on LMCache 0.5.6.
const (
	askedTokens = "lmcache_mp_lookup_requested_tokens_total"
	hitTokens   = "lmcache_mp_lookup_hit_tokens_total"
	resident    = "process_resident_memory_bytes"
)

// A view is what the server's HTTP side shows at one moment.
type view struct {
	metrics row.Snapshot
	status  lmcmp.Status
}

// look reads it; without an HTTP side it sees nothing.
func (r *runner) look(ctx context.Context) (view, error) {
	if r.server.HTTP == "" {
		return view{}, nil
	}
	status, err := r.server.Status(ctx)
	if err != nil {
		return view{}, err
	}
	metrics, err := probe.New("cache server", r.server.HTTP+"/metrics", nil).Snapshot(ctx)
	return view{metrics, status}, err
}

const (
	settleFor   = 5 * time.Second // counters and locks lag behind the replies
	settleEvery = 20 * time.Millisecond
)

// lookAgain compares what the server shows with what the clients did, for as
// long as it takes to settle.
func (r *runner) lookAgain(ctx context.Context, before view) error {
	if r.server.HTTP == "" || r.died() {
		return nil
	}
	deadline := time.Now().Add(settleFor)
	for {
		now, err := r.look(ctx)
		if err != nil {
			r.record.finding(row.Finding{Code: row.WitnessMissing, Phase: "end", Evidence: err.Error(), Advice: "the server answered before the run"})
			return nil //nolint:nilerr // it is a finding
		}
		findings := r.compareViews(before, now)
		if len(findings) == 0 || time.Now().After(deadline) || counterReset(findings) {
			for _, f := range findings {
				r.record.finding(f)
				if f.Code == row.LocksLeaked {
					r.record.taint("objects are still locked for readers")
				}
			}
			r.record.result.MemoryGrew = grew(before.metrics, now.metrics)
			return nil
		}
		if err := sleep(ctx, settleEvery); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
}

func (r *runner) died() bool {
	r.record.mu.Lock()
	defer r.record.mu.Unlock()
	for _, f := range r.record.result.Findings {
		if f.Code == row.ServerDied {
			return true
		}
	}
	return false
}

func counterReset(findings []row.Finding) bool {
	for _, f := range findings {
		if f.Code == row.CounterReset {
			return true
		}
	}
	return false
}

// compareViews holds the counters against the lookups of this run. It compares
// only when all of them ended well: after another finding the sums are not
// known.
func (r *runner) compareViews(before, now view) []row.Finding {
	r.record.mu.Lock()
	defer r.record.mu.Unlock()
	if len(r.record.result.Findings) > 0 {
		return nil
	}
	var findings []row.Finding
	for _, c := range []struct {
		metric string
		want   int
	}{{askedTokens, r.record.consumedAsked}, {hitTokens, r.record.consumedHit}} {
		got, state := probe.Delta(before.metrics, now.metrics, c.metric, nil)
		f := row.Finding{Phase: "end"}
		switch {
		case state == row.Restarted:
			f.Code, f.Evidence = row.CounterReset, fmt.Sprintf("%s went down: the server was restarted", c.metric)
		case state == row.Absent && c.want > 0:
			f.Code, f.Evidence = row.WitnessMissing, fmt.Sprintf("the server does not export %s", c.metric)
		case state == row.Impossible:
			f.Code, f.Evidence = row.ImpossibleCounter, fmt.Sprintf("%s is below 0", c.metric)
		case int(got) > c.want && c.metric == askedTokens:
			f.Code = row.ForeignTraffic
			f.Evidence = fmt.Sprintf("%s grew by %d tokens, this run looked up %d", c.metric, int(got), c.want)
			f.Advice = "somebody else uses the server, or it counts twice"
		case int(got) != c.want:
			f.Code = row.WitnessDisagrees
			f.Evidence = fmt.Sprintf("%s grew by %d tokens, the lookups of this run come to %d", c.metric, int(got), c.want)
		default:
			continue
		}
		findings = append(findings, f)
	}
	if locks := now.status.ReadLocks - before.status.ReadLocks; locks > 0 {
		findings = append(findings, row.Finding{
			Code: row.LocksLeaked, Phase: "end",
			Evidence: fmt.Sprintf("%d objects are locked for readers that were not before", locks),
			Advice:   "every lookup of this run was retrieved or freed: the server lost a release",
		})
	}
	return findings
}

// grew is by how much the server's resident memory grew.
func grew(before, now row.Snapshot) int64 {
	was, ok := probe.Sum(before, resident, nil)
	is, ok2 := probe.Sum(now, resident, nil)
	if !ok || !ok2 {
		return 0
	}
	return int64(is - was)
}
