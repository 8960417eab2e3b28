package probe

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/kvproof/kvproof/harness/row"
)

// The fields of LMCache's prefetch controller that have carried token counts,
// in the order in which they are tried.
var (
	statusHits    = []string{"hit_tokens", "total_hit_tokens", "prefetch_hit_tokens", "found_tokens"}
	statusQueries = []string{"requested_tokens", "total_requested_tokens", "prefetch_requested_tokens", "num_requested_tokens"}
)

// statusRatio takes the change of the prefetch controller's totals between two
// status pages.
func statusRatio(before, after any) Ratio {
	hitsName, hits := statusDelta(before, after, statusHits)
	queriesName, queries := statusDelta(before, after, statusQueries)
	r := Ratio{HitsName: hitsName, QueriesName: queriesName, Level: Tokens}
	r.set(hits, queries)
	return r
}

// statusDelta is the change of the first field that the later page has. A page
// that was not read before the pass leaves the change unknown.
func statusDelta(before, after any, fields []string) (name string, change reading) {
	now := prefetchController(after, fields)
	was := prefetchController(before, fields)
	for _, field := range fields {
		end, ok := number(now[field])
		if !ok {
			continue
		}
		start, ok := number(was[field])
		switch {
		case !ok:
			return field, reading{state: row.Absent}
		case end < start:
			return field, reading{state: row.Restarted}
		}
		return field, reading{end - start, row.Known}
	}
	return fields[0], reading{state: row.Absent}
}

// prefetchController finds the first object of that name, at whatever depth,
// that has one of the fields as a number. Keys are tried in order, so that two
// pages of one server give the same object.
func prefetchController(status any, fields []string) map[string]any {
	var children []any
	switch status := status.(type) {
	case map[string]any:
		if controller, ok := status["prefetch_controller"].(map[string]any); ok {
			for _, field := range fields {
				if _, ok := number(controller[field]); ok {
					return controller
				}
			}
		}
		for _, key := range slices.Sorted(maps.Keys(status)) {
			children = append(children, status[key])
		}
	case []any:
		children = status
	}
	for _, child := range children {
		if found := prefetchController(child, fields); found != nil {
			return found
		}
	}
	return nil
}

// number reads a JSON number, however it was decoded. Booleans and strings are
// none.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	}
	return 0, false
}
