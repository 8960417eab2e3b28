package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/fixtures/dataset"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/tokenize"
)

// readData reads the file of the workload that is made of text, and refuses one
// that nothing reads, or more than one workload would.
func (s *Settings) readData(sel *selection) (err error) {
	var readers []string
	var text fixtures.Workload
	for _, w := range sel.workloads {
		if w.Format != "" || w.Name == "trace" {
			readers = append(readers, w.Name)
		}
		if w.Format != "" {
			text = w
		}
		if w.NeedsFile && s.Data == "" {
			return fmt.Errorf("-workload=%s: workload %s is made of a file of yours, which is not shipped: -data=PATH", s.Workload, w.Name)
		}
	}
	var subsets []string
	if s.Subsets != "" {
		subsets = strings.Split(s.Subsets, ",")
	}
	switch {
	case s.Data != "" && len(readers) == 0:
		return fmt.Errorf("-data=%s: no workload of -workload=%s reads a file", s.Data, s.Workload)
	case s.Data != "" && len(readers) > 1:
		return fmt.Errorf("-data=%s: the workloads %s would all read it; name one of them in -workload", s.Data, strings.Join(readers, " and "))
	case len(subsets) > 0 && text.Format != dataset.LongBench:
		return fmt.Errorf("-subsets=%s: only -workload=longbench has subsets", s.Subsets)
	case !slices.Contains([]string{"auto", "on", "off"}, s.Chat):
		return fmt.Errorf("-chat=%s: want on, off or auto", s.Chat)
	case s.Verbatim && text.Format == "":
		return errors.New("-verbatim=true: only workloads of text have marks to leave out")
	case s.Chat != "auto" && text.Format == "":
		return fmt.Errorf("-chat=%s: no workload of -workload=%s is made of text", s.Chat, s.Workload)
	case !s.Dedup && text.Format == "":
		return fmt.Errorf("-dedup=false: no workload of -workload=%s is made of text", s.Workload)
	case s.Verbatim && slices.ContainsFunc(sel.rows, neverEmptied):
		return fmt.Errorf("-verbatim=true: row %s of -backend=%s cannot be emptied: only the marks in the texts keep its cycles apart",
			sel.rows[slices.IndexFunc(sel.rows, neverEmptied)].Name(), s.Backend)
	case text.Format == "":
		return nil
	case s.Data == "":
		sel.samples, err = fixtures.ShippedText()
		return err
	}
	if sel.samples, err = dataset.Read(text.Format, s.Data, subsets); err != nil {
		return fmt.Errorf("-data=%s: %w", s.Data, err)
	}
	return nil
}

// neverEmptied says that a row has a cache and no way to empty it.
func neverEmptied(r row.Row) bool { return r.Supports(row.Reuse) && !r.Supports(row.Reset) }

// textWorkload is the selected workload that is made of text.
func (sel *selection) textWorkload() (fixtures.Workload, bool) {
	i := slices.IndexFunc(sel.workloads, func(w fixtures.Workload) bool { return w.Format != "" })
	if i < 0 {
		return fixtures.Workload{}, false
	}
	return sel.workloads[i], true
}

// tokenize turns the samples into token ids, by the model that the rows run:
// the engine alone is up meanwhile. A text for which the sizes leave no room
// does not apply where all workloads were asked for.
func (s *Settings) tokenize(ctx context.Context, sel *selection, progress *progress) error {
	w, ok := sel.textWorkload()
	if !ok {
		return nil
	}
	if sel.stack.Engine != recipe.InProcess && w.Format != dataset.TokenIDs {
		if s.Workload == "all" {
			sel.inapplicable = append(sel.inapplicable, fmt.Errorf("workload %s: a real engine would be started once more to tokenize; ask for it alone", w.Name))
			sel.workloads = slices.DeleteFunc(sel.workloads, func(o fixtures.Workload) bool { return o.Name == w.Name })
			return nil
		}
		if missingOf(sel.rows[0]) != "" {
			return nil // the benchmarks say so
		}
	}
	progress.show("tokenizing " + w.Name)
	r := sel.rows[0]
	if sel.stack.Engine == recipe.InProcess {
		var err error
		if r, err = engineWithoutCache(s.Model); err != nil {
			return err
		}
	}
	texts, err := s.textsOf(ctx, w, sel.samples, sel.params, r, progress)
	switch {
	case err == nil:
		sel.params.Texts = texts
	case s.Workload == "all" && tooShort(err):
		sel.inapplicable = append(sel.inapplicable, s.planError(w.Name, err))
		sel.workloads = slices.DeleteFunc(sel.workloads, func(o fixtures.Workload) bool { return o.Name == w.Name })
	default:
		return s.planError(w.Name, err)
	}
	return nil
}

func (s *Settings) textsOf(ctx context.Context, w fixtures.Workload, samples []dataset.Sample, params fixtures.Params, r row.Row, progress *progress) (texts *fixtures.Texts, err error) {
	options := tokenize.Options{
		Format: w.Format, Params: params, Repeat: !s.Dedup,
		Chat:     s.Chat == "on" || s.Chat == "auto" && tokenize.DefaultChat(w.Format),
		Progress: func(done int) { progress.show(fmt.Sprintf("tokenizing %s %d/%d", w.Name, done, params.Requests)) },
	}
	if w.Format == dataset.TokenIDs {
		return tokenize.Prompts(ctx, nil, samples, options)
	}
	server, err := r.Start(ctx, row.Env{BlockSize: params.BlockSize, Concurrency: 1, Context: params.Context, Log: io.Discard})
	if err != nil {
		return nil, fmt.Errorf("starting an engine to tokenize with: %w", err)
	}
	defer func() {
		closing, cancel := closeContext()
		defer cancel()
		if closed := server.Close(closing); err == nil {
			err = closed
		}
	}()
	return tokenize.Prompts(ctx, server.Tokenizer, samples, options)
}

// textsFor is the data set of a test's cell: the run's own, or the text that
// ships.
func textsFor(tb testing.TB, w fixtures.Workload, params fixtures.Params, model string) *fixtures.Texts {
	tb.Helper()
	samples := current.selection.samples
	if samples == nil {
		var err error
		samples, err = fixtures.ShippedText()
		require.NoError(tb, err)
	}
	r, err := engineWithoutCache(model)
	require.NoError(tb, err)
	texts, err := settings.textsOf(tb.Context(), w, samples, params, r, &progress{})
	require.NoError(tb, err)
	return texts
}

// engineWithoutCache is the miniature engine alone, which tokenizes as it does in
// every row.
func engineWithoutCache(model string) (row.Row, error) {
	rows, _, err := recipe.Select("baseline", recipe.Mini{Model: model})
	if err != nil {
		return nil, err
	}
	return rows[0], nil
}
