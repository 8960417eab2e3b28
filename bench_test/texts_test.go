package bench_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness"
	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/verdict"
)

// TestTextOutOfTheBox: the text that ships goes through the model's chat
// template and tokenizer, and hits as the oracle says.
func TestTextOutOfTheBox(t *testing.T) {
	for _, name := range []string{"lmcache", "daser-chunk"} {
		t.Run("backend="+name, func(t *testing.T) {
			cell, _ := harness.StartCell(t, harness.TestCell{Row: name, Workload: "text"})
			proof, findings, err := cell.Proof(t.Context())
			require.NoError(t, err)
			require.Empty(t, findings)
			require.Equal(t, verdict.Proven, proof.Grade)
			require.Positive(t, proof.Result.Warm.HitTokens)
			result, findings, err := cell.Cycle(t.Context())
			require.NoError(t, err)
			require.Empty(t, findings)
			require.Equal(t, result.Warm.Expected.Total.Min, result.Warm.HitTokens)
			for _, request := range result.Warm.Requests {
				require.Len(t, request.Parts.Documents, 2)
				require.Equal(t, settings.BlockSize, len(request.Parts.Documents[0]), "the template's beginning fits into a block")
			}
		})
	}
}

// prose makes text of n words that nobody wrote.
func prose(random *rand.Rand, n int) string {
	words := []string{"light", "rays", "of", "the", "prism", "are", "refracted", "colours", "and", "violet", "red", "seen", "by", "sun", "hole", "paper"}
	var b strings.Builder
	for range n {
		b.WriteString(words[random.IntN(len(words))] + " ")
	}
	return b.String()
}

// TestDataSets: files in the shapes in which people have them are benchmarked
// from the user's path, and what was asked is what is in them.
func TestDataSets(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(3, 4))
	var reviews, questions, prompts, chats, ids bytes.Buffer
	table := csv.NewWriter(&reviews)
	require.NoError(t, table.Write([]string{"review", "sentiment"}))
	for i := range 6 {
		text := prose(random, 40+i)
		require.NoError(t, table.Write([]string{text + ",\n\"so it is\"", "positive"}))
		fmt.Fprintf(&questions, `{"context":%q,"input":"What of ray %d?","answers":["w1","nothing"],"length":40}`+"\n", text, i)
		fmt.Fprintf(&prompts, `{"prompt":%q,"output_tokens":33}`+"\n", text)
		fmt.Fprintf(&chats, `%s{"id":"%d","conversations":[{"from":"human","value":%q},{"from":"gpt","value":%q}]}`+"\n", []string{"[", ","}[min(i, 1)], i, text, prose(random, 32))
		fmt.Fprintf(&ids, `{"prompt_token_ids":[%s]}`+"\n", strings.Trim(strings.Repeat(fmt.Sprintf("%d,", 100+i), 50), ","))
	}
	table.Flush()
	chats.WriteString("]")
	for _, c := range []struct {
		workload, file string
		text           *bytes.Buffer
		more           []string
		backends       string
	}{
		{"imdb", "reviews.csv", &reviews, nil, "lmcache,daser-chunk"},
		{"longbench", "bench/qasper.jsonl", &questions, []string{"-subsets=qasper"}, "lmcache"},
		{"sharegpt", "chats.json", &chats, nil, "lmcache"},
		{"custom", "prompts.jsonl", &prompts, []string{"-chat=off"}, "lmcache"},
		{"token-ids", "ids.jsonl", &ids, nil, "lmcache"},
	} {
		t.Run(c.workload, func(t *testing.T) {
			path, results := filepath.Join(dir, c.file), t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, c.text.Bytes(), 0o644))
			data := path
			if c.workload == "longbench" {
				data = filepath.Dir(path)
			}
			args := append([]string{"-backend=" + c.backends, "-workload=" + c.workload, "-data=" + data, "-results=" + results}, c.more...)
			out, err := suite(t.Context(), append(small, args...)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "workload="+c.workload)

			lines, err := os.ReadFile(filepath.Join(onlyRun(t, results), "lmcache", "block-16", c.workload, "cycle-1", "warm.requests.jsonl"))
			require.NoError(t, err)
			decoder := json.NewDecoder(bytes.NewReader(lines))
			for range 3 {
				var request artifact.Request
				require.NoError(t, decoder.Decode(&request))
				require.Greater(t, *request.CachedTokens, *request.PromptTokens/2)
				require.Equal(t, map[string]int{"custom": 33, "sharegpt": 32, "imdb": 32, "longbench": 32, "token-ids": 32}[c.workload], *request.CompletionTokens)
			}
		})
	}
}

// TestTextOnAttached: a server that somebody else started tokenizes, too.
func TestTextOnAttached(t *testing.T) {
	results := t.TempDir()
	out, err := suite(t.Context(), "-attach=engine="+engine(t), "-allowreset", "-backend=engine-cache", "-blocksize=32", "-workload=text",
		"-requests=3", "-concurrency=2", "-inputlen=400", "-outputlen=32", "-results="+results).CombinedOutput()
	require.NoError(t, err, "%s", out)
	r := readObject(t, onlyRun(t, results), "engine-cache", "block-32", "text", "cycle-1", "results.json")
	warm := r["result"].(object)["warm"].(object)["summary"].(object)
	require.Greater(t, warm["usage_cached_tokens"], warm["prompt_tokens_total"].(float64)*0.8)
}
