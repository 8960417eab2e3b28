package probe

import (
	"slices"
	"strings"

	"github.com/kvproof/kvproof/harness/row"
)

// processStart is exported by the standard clients of Python and Go, except by
// a vLLM with several API servers (multiprocess mode).
const processStart = "process_start_time_seconds"

// Sum adds up the series of a metric over all label sets, engines included,
// that carry the labels in match (nil: all). It accepts a counter with and
// without the _total suffix, whichever was asked for, and prefers the spelling
// that was asked for. The second result is false if no such series exists.
//
// Only whole names count: vllm:iteration_tokens_total is a histogram (observed
// on vLLM 0.32.0), has no series of that name, and is therefore absent here.
func Sum(s row.Snapshot, metric string, match map[string]string) (float64, bool) {
	sum, found := 0.0, false
	for _, series := range selected(s, metric, match) {
		sum += series.Value
		found = true
	}
	return sum, found
}

// Delta is how much a counter grew between two snapshots of one endpoint,
// summed over the label sets that carry match. Ratios must be taken of such
// sums and never be averaged over engines.
//
// The state says what the number is worth; it is 0 unless the state is Known:
//   - Absent: the endpoint exports no such series in either snapshot, or one
//     of the snapshots was never taken (the zero Snapshot);
//   - Restarted: the process started anew (process_start_time_seconds, or the
//     counter's own _created time, changed), a series went down or vanished,
//     or the sum went down. A series whose labels became more is neither;
//   - Impossible: a series is below 0;
//   - Known: everything else. A series that only the later snapshot has counts
//     from 0: labelled counters appear with their first use.
func Delta(before, after row.Snapshot, metric string, match map[string]string) (float64, row.State) {
	if !taken(before) || !taken(after) {
		return 0, row.Absent
	}
	if changed(before, after, processStart, nil) {
		return 0, row.Restarted
	}
	old := selected(before, metric, match)
	was, is := byLabels(old), byLabels(selected(after, metric, match))
	if len(was) == 0 && len(is) == 0 {
		return 0, row.Absent
	}
	if changed(before, after, strings.TrimSuffix(metric, "_total")+"_created", match) {
		return 0, row.Restarted
	}
	for _, series := range old {
		now, ok := is[labelKey(series.Labels)]
		if !ok {
			now, ok = split(series.Labels, was, selected(after, metric, match))
		}
		if !ok || now < was[labelKey(series.Labels)] {
			return 0, row.Restarted
		}
	}
	for _, value := range is {
		if value < 0 {
			return 0, row.Impossible
		}
	}
	end, _ := Sum(after, metric, match)
	start, _ := Sum(before, metric, match) // 0 where the series is new
	if end < start {
		return 0, row.Restarted
	}
	return end - start, row.Known
}

// split is the sum of the new series that carry the labels of one that is gone:
// exporters take a label in when its first value comes.
func split(labels map[string]string, was map[string]float64, after []row.Series) (sum float64, found bool) {
	for _, series := range after {
		if _, old := was[labelKey(series.Labels)]; !old && carries(series.Labels, labels) {
			sum += series.Value
			found = true
		}
	}
	return sum, found
}

// taken tells an empty page from no page: without one, a lifetime total would
// pass for a change.
func taken(s row.Snapshot) bool { return s.Probe != "" || len(s.Series) > 0 }

// selected returns the series of the counter called metric, in whichever of
// its two spellings the snapshot has it.
func selected(s row.Snapshot, metric string, match map[string]string) []row.Series {
	other := metric + "_total"
	if bare, ok := strings.CutSuffix(metric, "_total"); ok {
		other = bare
	}
	for _, name := range []string{metric, other} {
		exported := false
		var found []row.Series
		for _, series := range s.Series {
			if series.Name != name {
				continue
			}
			exported = true
			if carries(series.Labels, match) {
				found = append(found, series)
			}
		}
		if exported {
			return found
		}
	}
	return nil
}

// exports says whether a snapshot has a metric, under whatever labels.
func exports(s row.Snapshot, metric string) bool { return len(selected(s, metric, nil)) > 0 }

func carries(labels, match map[string]string) bool {
	for name, value := range match {
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// changed says whether a series that both snapshots have carries another
// value. It reads the name as it stands, without a second spelling.
func changed(before, after row.Snapshot, name string, match map[string]string) bool {
	exact := func(s row.Snapshot) map[string]float64 {
		var found []row.Series
		for _, series := range s.Series {
			if series.Name == name && carries(series.Labels, match) {
				found = append(found, series)
			}
		}
		return byLabels(found)
	}
	was := exact(before)
	for labels, value := range exact(after) {
		if old, ok := was[labels]; ok && old != value {
			return true
		}
	}
	return false
}

// byLabels keys series by their labels alone, so that a counter keeps its
// identity if its spelling changes. Duplicates add up, as they do in Sum.
func byLabels(series []row.Series) map[string]float64 {
	values := make(map[string]float64, len(series))
	for _, s := range series {
		values[labelKey(s.Labels)] += s.Value
	}
	return values
}

// labelKey names a label set. A label without a value is none, as in Prometheus:
// LMCache 0.5.6 exports {l1_tag} until there is a cache_salt, and from then on
// {l1_tag,cache_salt=""} for the same series.
func labelKey(labels map[string]string) string {
	parts := make([]string, 0, len(labels))
	for name, value := range labels {
		if value != "" {
			parts = append(parts, name+"\x00"+value)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "\x01")
}
