// Package probe reads the counters of a server and turns two readings into
// what a pass did: deltas, hit tokens, hit rates, and the effective block size.
// It tells apart what is easily confused: a counter that is absent (unknown),
// one that did not move (0), 0/0 (no data), one that restarted, and numbers
// that cannot be.
//
//	engine := probe.New("engine", "http://127.0.0.1:8001/metrics", nil)
//	before, err := engine.Snapshot(ctx)
//	// … the pass …
//	after, err := engine.Snapshot(ctx)
//	count := probe.VLLMLocal()(before, after)
//	rate, reason, ok := probe.HitRate(count)
//
// It is the only package that imports expfmt.
package probe

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kvproof/kvproof/harness/row"
)

// maxPage bounds a metrics page. vLLM 0.32.0 writes 57 KB, LMCache 0.5.6 18 KB.
const maxPage = 16 << 20

// Parse reads a page in the Prometheus text format. Every sample line becomes
// one series under the name that stands on the page: a histogram gives its
// _bucket, _sum and _count, a counter of the Python client also its _created
// time. Labels are kept as they are; samples that are NaN or infinite are left
// out. Series are sorted by name; within a name they keep their order.
//
// A page that ends in the middle of a line was cut off and is an error: half a
// number is a number too.
func Parse(name string, r io.Reader) (snapshot row.Snapshot, err error) {
	page, err := io.ReadAll(io.LimitReader(r, maxPage+1))
	if err != nil {
		return row.Snapshot{}, fmt.Errorf("reading metrics of %s: %w", name, err)
	}
	if len(page) > maxPage {
		return row.Snapshot{}, fmt.Errorf("reading metrics of %s: more than %d bytes", name, maxPage)
	}
	defer func() {
		// The page comes from a server that may be broken in any way; a bug of
		// the parser must not take the run down with it.
		if p := recover(); p != nil {
			snapshot, err = row.Snapshot{}, fmt.Errorf("parsing metrics of %s: parser panicked: %v", name, p)
		}
	}()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(blankComments(page)))
	if err != nil {
		return row.Snapshot{}, fmt.Errorf("parsing metrics of %s: %w", name, err)
	}
	return row.Snapshot{Probe: name, Series: flatten(families)}, nil
}

// blankComments empties the comment lines and keeps their line breaks, so that
// errors name the right line. Without HELP and TYPE the parser takes every
// line as it stands: the order of lines and types that it does not know cannot
// matter, and the "le" of a bucket keeps its spelling.
func blankComments(page []byte) []byte {
	out := make([]byte, 0, len(page))
	for line := range bytes.Lines(page) {
		body := bytes.TrimRight(line, "\r\n")
		if trimmed := bytes.TrimLeft(body, " \t"); len(trimmed) > 0 && trimmed[0] != '#' {
			out = append(out, body...)
		}
		if line[len(line)-1] == '\n' {
			out = append(out, '\n')
		}
	}
	return out
}

func flatten(families map[string]*dto.MetricFamily) []row.Series {
	var series []row.Series
	for name, family := range families {
		for _, m := range family.GetMetric() {
			value := m.GetUntyped().GetValue()
			if math.IsNaN(value) || math.IsInf(value, 0) {
				continue
			}
			s := row.Series{Name: name, Value: value}
			if len(m.GetLabel()) > 0 {
				s.Labels = make(map[string]string, len(m.GetLabel()))
			}
			for _, pair := range m.GetLabel() {
				s.Labels[pair.GetName()] = pair.GetValue()
			}
			series = append(series, s)
		}
	}
	slices.SortStableFunc(series, func(a, b row.Series) int { return strings.Compare(a.Name, b.Name) })
	return series
}
