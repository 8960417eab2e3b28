package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/mini/model"
	"github.com/kvproof/kvproof/harness/tiny"
)

// TestAttachFallbacks: what a server or a gateway lacks takes something from the
// grade, never a number from its meaning.
func TestAttachFallbacks(t *testing.T) {
	const reused = "-workload=recomposed -inputlen=200"
	for _, c := range []struct {
		name   string
		row    string
		change func(http.Handler) http.Handler
		args   string
		want   string // of the table's line
		fact   string // in the manifest
	}{
		{"salts that separate", mini.EngineCache, nil, reused, `recomposed .* identical +observed +shared-server`, `"cold": "content never`},
		{"salts that are dropped", mini.EngineCache, withoutSalts, reused, `recomposed .* undecided +observed +shared-server`, `"salts": "not used: a prompt hit 64 tokens under another salt`},
		{"salts that are refused", mini.EngineCache, refusesSalts, reused, `recomposed .* undecided +observed +shared-server`, `"salts": "not used: a request with cache_salt ended as http-error`},
		{"no cached_tokens", mini.EngineCache, withoutCachedTokens, "", ` 96\.0 .* identical +observed +shared-server`, `not seen to hit`},
		{"no counters", mini.EngineCache, notFound("/metrics"), "", ` 96\.0 .* identical +observed +shared-server`, `"counters": "`},
		{"neither", mini.EngineCache, all(withoutCachedTokens, notFound("/metrics")), "", ` - +100\.0 +identical +observed +shared-server`, `"counters": "`},
		{"no counters, alone", mini.EngineCache, notFound("/metrics"), "-allowreset", ` 96\.0 .* identical +observed`, `"counters": "`},
		{"no version, no tokenizer", mini.EngineCache, all(notFound("/version"), notFound("/tokenize")), "", `identical +observed`, ""},
		{"a cache that cannot be asked", mini.LMCache, nil, "", `lmcache .* 96\.0 .* identical +observed +shared-server settle-unseen`, ""},
		{"a cache that cannot be asked, alone", mini.LMCache, nil, "-allowreset", `lmcache .* 96\.0 .* identical +observed +settle-unseen`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGateway(t, c.change, engineOf(t, c.row, model.Nano()))
			args := append([]string{"-attach=engine=" + g.URL, "-backend=" + c.row}, strings.Fields(c.args)...)
			out, code, results := attach(t, args...)
			require.Zero(t, code, out)
			require.Regexp(t, c.want, out)
			require.NotContains(t, out, "no-hits")
			manifest, err := json.MarshalIndent(readObject(t, onlyRun(t, results), "manifest.json"), "", " ")
			require.NoError(t, err)
			require.Contains(t, string(manifest), c.fact)
		})
	}
}

// TestAttachLacks: what a promise needs and a server lacks is refused, or found.
func TestAttachLacks(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(http.Handler) http.Handler
		args   string
		want   string
	}{
		{"a reset that cannot be proved", withoutCachedTokens, "-allowreset", "start vLLM with --enable-prompt-tokens-details, or leave -allowreset out"},
		{"headers that a client cannot send", nil, "-loader=vllm-bench", "it sends the key of OPENAI_API_KEY, and no other headers"},
		{"texts without a tokenizer", notFound("/tokenize"), "-workload=text", "/tokenize"},
		{"somebody else after all", nil, "-allowreset", "foreign-traffic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := engine(t)
			if c.name == "somebody else after all" {
				c.change = besides(server)
			}
			g := newGateway(t, c.change, server)
			out, code, _ := attach(t, append([]string{"-attach=engine=" + g.URL, "-backend=engine-cache"}, strings.Fields(c.args)...)...)
			require.NotZero(t, code, out)
			require.Contains(t, out, c.want)
			require.NotContains(t, out, "warm-p50-ttft-ns\t", "no number")
		})
	}
}

// TestUpstreamLoaderOnShared: with a client that makes its prompts up, a second
// run on a server that others use is as cold as the first.
func TestUpstreamLoaderOnShared(t *testing.T) {
	small := model.Nano()
	dir := filepath.Join(t.TempDir(), "nano")
	require.NoError(t, tiny.WriteTokenizer(dir, small.Vocab, small.Context))
	server, client := engine(t), standinClient(t)
	target, err := url.Parse(server)
	require.NoError(t, err)
	busy := httptest.NewServer(besides(server)(wholeBody(httputil.NewSingleHostReverseProxy(target))))
	t.Cleanup(busy.Close)
	seeds := make(map[string]bool)
	for _, at := range []string{server, server, busy.URL} {
		out, results, err := loaded(t, "", "-attach=engine="+at, "-backend=engine-cache", "-blocksize=32", "-requests=8", "-vllm="+client, "-model="+dir)
		require.NoError(t, err, out)
		require.Regexp(t, `vllm-bench-random .* observed +shared-server`, out)
		prepared := readObject(t, onlyRun(t, results), "prepare.json")["config"].(object)
		seeds[fmt.Sprint(prepared["bench_seed"])] = true
	}
	require.Len(t, seeds, 3)
	require.NotContains(t, seeds, "42")
}

// engineOf is an engine with a row's cache and a model, which somebody started.
func engineOf(t *testing.T, row string, config model.Config) string {
	t.Helper()
	stack, err := mini.Start(t.Context(), mini.Config{Row: row, BlockSize: 32, Model: config})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stack.Close(context.WithoutCancel(t.Context()))) })
	return stack.EngineURL()
}

func all(changes ...func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		for _, change := range changes {
			next = change(next)
		}
		return next
	}
}

func notFound(path string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, path) {
				http.NotFound(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// besides sends a request of somebody else's to the engine with every tenth.
func besides(engine string) func(http.Handler) http.Handler {
	var served atomic.Int64
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n := served.Add(1); strings.HasSuffix(r.URL.Path, "/v1/completions") && n%10 == 0 {
				body := fmt.Sprintf(`{"prompt": [%d, 11, 12, 13], "max_tokens": 4}`, 10+n%900)
				if response, err := http.Post(engine+"/v1/completions", "application/json", strings.NewReader(body)); err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// withoutSalts forwards requests without their salt, as a gateway does that
// knows the fields of another API.
func withoutSalts(next http.Handler) http.Handler {
	return onSalt(func(w http.ResponseWriter, r *http.Request, fields map[string]json.RawMessage) {
		delete(fields, "cache_salt")
		body, err := json.Marshal(fields)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	}, next)
}

func refusesSalts(next http.Handler) http.Handler {
	return onSalt(func(w http.ResponseWriter, _ *http.Request, _ map[string]json.RawMessage) {
		http.Error(w, `{"error":{"message":"unknown field cache_salt"}}`, http.StatusBadRequest)
	}, next)
}

func onSalt(salted func(http.ResponseWriter, *http.Request, map[string]json.RawMessage), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := readBody(w, r)
		if !ok {
			return
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(body, &fields) == nil && fields["cache_salt"] != nil {
			salted(w, r, fields)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withoutCachedTokens leaves the details of usage out.
func withoutCachedTokens(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(stripping{w}, r) })
}

type stripping struct{ http.ResponseWriter }

var details = regexp.MustCompile(`,\s*"prompt_tokens_details":\s*\{[^}]*\}`)

func (s stripping) Write(p []byte) (int, error) {
	_, err := s.ResponseWriter.Write(details.ReplaceAll(p, nil))
	return len(p), err
}

// Unwrap lets the proxy flush.
func (s stripping) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// oneChunk answers every completion with one chunk that has all of it.
func oneChunk(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/v1/completions") {
			next.ServeHTTP(w, r)
			return
		}
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, r)
		w.Header().Set("Content-Type", "text/event-stream")
		events := strings.Split(strings.TrimSpace(whole.Body.String()), "\n\n")
		for _, event := range events[len(events)-3:] { // the last token, usage, the end
			fmt.Fprint(w, event+"\n\n")
		}
	})
}

// TestAttachHitCases: the shapes of hit are asked of an attached server, too.
// Where nothing of it may be emptied, answers without the cache come under a salt
// of their own; where salts do not separate, those cases say so.
func TestAttachHitCases(t *testing.T) {
	const cases = "-test.run=TestHitIsRight/backend=engine-cache/(length=2B|stop=token|salt=separate)$"
	for _, c := range []struct {
		name   string
		change func(http.Handler) http.Handler
		want   []string
	}{
		{"with salts", nil, []string{"--- PASS: TestHitIsRight/backend=engine-cache/length=2B", "--- PASS: TestHitIsRight/backend=engine-cache/salt=separate"}},
		{"without", withoutSalts, []string{"nor separate requests by a salt.", "was not seen to keep them apart."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGateway(t, c.change, engine(t))
			out, code, _ := attach(t, "-attach=engine="+g.URL, "-backend=engine-cache", "-test.bench=^$", cases, "-test.v")
			require.Zero(t, code, out)
			for _, want := range c.want {
				require.Contains(t, out, want)
			}
		})
	}
}

// TestAttachDaseR: DaseR tells its block size over a socket of its machine alone,
// which takes nothing from an attached one but that.
func TestAttachDaseR(t *testing.T) {
	stack, err := mini.Start(t.Context(), mini.Config{Row: mini.DaserPrefix, BlockSize: 32, Model: model.Nano(), Prefix: []int32{}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stack.Close(context.WithoutCancel(t.Context()))) })
	target, err := url.Parse(stack.DaserURL())
	require.NoError(t, err)
	proxy := wholeBody(httputil.NewSingleHostReverseProxy(target))
	daser := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			fmt.Fprint(w, `{"status":"ok","vllm":true}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(daser.Close)
	out, code, _ := attach(t, "-attach=engine="+stack.EngineURL()+",daser="+daser.URL, "-backend=daser-prefix")
	require.Zero(t, code, out)
	require.Regexp(t, `daser-prefix .* 96\.0 .* identical +observed +shared-server`, out)
	require.NotContains(t, out, "settle-unseen", "it drains")
}
