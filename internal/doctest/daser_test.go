package doctest_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/internal/doctest"
)

// daserFlags are the flags of run_bench.py, bench_load.py and
// bench_start_servers.py of DaseR's benchmarks.
const daserFlags = `
--backend --load-generator --dataset --model --store-dir --imdb --longbench-dir --datasets --max-samples --gpu-id --gpu-util --max-num-seqs
--max-num-batched-tokens --block-size --max-inflight --gen-max-tokens --max-context-tokens --bench-num-prompts --bench-input-len --bench-output-len
--bench-request-rate --bench-max-concurrency --bench-random-prefix-len --bench-random-range-ratio --bench-seed --bench-burstiness --evict
--prometheus-url --tensor-parallel-size --trust-remote-code --bench-prefix-ratio --daser-prefetch --daser-prefetch-max-requests
--daser-storage-format --daser-online-pack-batch-slots
--prepare-only --cache-reuse-mode --manifest --prepared-config --no-dedup-context --gen-temperature --gen-top-p --gen-seed --timeout
--max-l1-size --max-l2-size --out
--run-id --max-model-len --l1-size --l2-size --skip-l2 --transfer-mode --vllm-port --daser-port --startup-timeout`

var codeSpan = regexp.MustCompile("`([^`]+)`")

// Every flag of the original is in the table, once, with a flag that there is
// here or a reason why there is none; and every flag that the table names
// exists.
func TestTableOfDaseRsFlags(t *testing.T) {
	ours := flag.NewFlagSet("suite", flag.ContinueOnError)
	harness.Register(ours, "mini", "vllm")
	rows := make(map[string]bool)
	in := false
	for line := range strings.Lines(string(read(t, "docs/methods.md"))) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 {
			in = false
			continue
		}
		if strings.TrimSpace(cells[1]) == "DaseR's flag" {
			in = true
			continue
		}
		if !in || strings.HasPrefix(cells[1], "---") {
			continue
		}
		theirs := strings.Trim(strings.TrimSpace(cells[1]), "`")
		require.False(t, rows[theirs], "%s is there twice", theirs)
		rows[theirs] = true
		if here := strings.TrimSpace(cells[2]); here == "" {
			reason := strings.TrimSpace(cells[3])
			require.True(t, strings.HasPrefix(reason, "no: ") && len(reason) > 15, "%s has neither a flag nor a reason", theirs)
		}
		for _, m := range codeSpan.FindAllStringSubmatch(cells[2]+cells[3], -1) {
			name, isFlag := strings.CutPrefix(strings.Fields(m[1])[0], "-")
			if !isFlag || strings.HasPrefix(name, "-") {
				continue
			}
			name, value, given := strings.Cut(name, "=")
			require.NotNil(t, ours.Lookup(name), "%s: there is no flag -%s", theirs, name)
			if given && value != "N" {
				require.NoError(t, ours.Set(name, value), "%s: -%s=%s", theirs, name, value)
			}
		}
	}
	want := make(map[string]bool)
	for name := range strings.FieldsSeq(daserFlags) {
		want[name] = true
	}
	require.Equal(t, want, rows)
}

// testName is a code span that names a test.
var testName = regexp.MustCompile(`^Test[A-Z]\w*$`)

func TestTestsThatThePagesNameExist(t *testing.T) {
	tests := make(map[string]bool)
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		return err
	}))
	named := 0
	for name, text := range pages(t) {
		for _, mention := range doctest.Spans(name, text) {
			if testName.MatchString(mention.Text) {
				named++
				require.True(t, tests[mention.Text], "%s: there is no such test", mention)
			}
		}
	}
	require.Positive(t, named)
}
