package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/mini/model"
)

const gatewayKey = "s3cret-of-the-gateway"

// A gateway is a proxy with a key in front of several engines, which notes the
// paths that it was asked for.
type gateway struct {
	*httptest.Server
	mu    sync.Mutex
	paths []string
}

func newGateway(t *testing.T, change func(http.Handler) http.Handler, engines ...string) *gateway {
	t.Helper()
	var proxies []*httputil.ReverseProxy
	for _, engine := range engines {
		target, err := url.Parse(engine)
		require.NoError(t, err)
		proxies = append(proxies, &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.URL.Path = strings.TrimPrefix(r.Out.URL.Path, "/prefix")
		}})
	}
	g, turn := &gateway{}, new(atomic.Int64)
	forward := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxies[int(turn.Add(1))%len(proxies)].ServeHTTP(w, r)
	}))
	if change != nil {
		forward = change(forward)
	}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.paths = append(g.paths, r.URL.Path)
		g.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+gatewayKey || r.Header.Get("X-Team") != "kv" {
			http.Error(w, `{"error":{"message":"who are you?"}}`, http.StatusUnauthorized)
			return
		}
		wholeBody(forward).ServeHTTP(w, r)
	}))
	t.Cleanup(g.Close)
	return g
}

// wholeBody lets a proxy have the body of a request as a whole. An engine answers
// as soon as it has the prompt; a proxy that has not seen the end of the body by
// then loses it, and the answer is cut: golang.org/issue/40747.
func wholeBody(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := readBody(w, r); !ok {
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// readBody reads the body of a request and leaves it to be read again; false: it
// could not be, and that was answered.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, true
}

// engine is an engine with a prefix cache of its own, which somebody started.
func engine(t *testing.T) string {
	t.Helper()
	return engineOf(t, mini.EngineCache, model.Nano())
}

// attach runs the suite on a server and returns its output, exit code and the
// directory of its artifacts.
func attach(t *testing.T, args ...string) (string, int, string) {
	t.Helper()
	results := t.TempDir()
	cmd := suite(t.Context(), append([]string{
		"-test.bench=Serve$", "-results=" + results, "-blocksize=32", "-workload=unique", "-requests=8", "-concurrency=2", "-inputlen=100", "-outputlen=32",
	}, args...)...)
	cmd.Env = append(cmd.Env, "OPENAI_API_KEY="+gatewayKey, "KVPROOF_ATTACH_HEADERS=X-Team: kv")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its exit code is what counts
	return out.String(), cmd.ProcessState.ExitCode(), results
}

// TestAttach: through a gateway with a key, to two replicas that somebody else
// uses meanwhile. Nothing is called proven, nothing wrong, and nothing is reset.
func TestAttach(t *testing.T) {
	one, two := engine(t), engine(t)
	g := newGateway(t, nil, one, two)
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() { // background load, until the run is over
		for i := 0; ctx.Err() == nil; i++ {
			body := fmt.Sprintf(`{"prompt": [%d, 11, 12, 13], "max_tokens": 4}`, 10+i%900)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, one+"/v1/completions", strings.NewReader(body))
			if err != nil {
				return
			}
			r.Header.Set("Content-Type", "application/json")
			if response, err := http.DefaultClient.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		}
	})
	out, code, results := attach(t, "-attach=engine="+g.URL+"/prefix,metrics="+one+"/metrics,metrics="+two+"/metrics", "-backend=engine-cache")
	cancel()
	others.Wait()
	require.Zero(t, code, out)
	require.Contains(t, out, "empties nothing")
	require.Regexp(t, `engine-cache +unique .* observed +shared-server`, out)
	for _, path := range g.paths {
		require.NotContains(t, path, "reset")
		require.True(t, strings.HasPrefix(path, "/prefix/"), path)
	}
	require.NoError(t, filepath.WalkDir(results, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		require.NotContains(t, string(text), gatewayKey, "%s", path)
		return err
	}))
	require.NotContains(t, out, gatewayKey)
}

// TestAttachAlone: a server that is ours alone, by -allowreset, gives what it
// would give if the suite had started it.
func TestAttachAlone(t *testing.T) {
	g := newGateway(t, nil, engine(t))
	out, code, _ := attach(t, "-attach=engine="+g.URL, "-backend=engine-cache", "-allowreset", "-seed=3")
	require.Zero(t, code, out)
	require.Contains(t, out, "empties its caches (-allowreset)")
	require.Regexp(t, `engine-cache +unique .* identical +proven`, out)
	require.Contains(t, strings.Join(g.paths, " "), "/reset_prefix_cache")
}

// TestAttachToAnyModel: answers of a model that nobody described may have ids that
// prompts do without.
func TestAttachToAnyModel(t *testing.T) {
	out, code, _ := attach(t, "-attach=engine="+engineOf(t, mini.EngineCache, model.Mini()), "-backend=engine-cache", "-allowreset")
	require.Zero(t, code, out)
	require.Regexp(t, `engine-cache +unique .* identical +proven`, out)
}

// TestAttachRefused: what cannot be measured is refused by name.
func TestAttachRefused(t *testing.T) {
	server := engine(t)
	chatOnly := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/v1/completions") {
				http.NotFound(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	textOnly := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/v1/completions") {
				http.Error(w, `{"error":{"message":"prompt must be a string"}}`, http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	buffers := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			whole := httptest.NewRecorder()
			next.ServeHTTP(whole, r)
			for name, values := range whole.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(whole.Code)
			_, _ = w.Write(whole.Body.Bytes())
		})
	}
	for _, c := range []struct {
		name   string
		change func(http.Handler) http.Handler
		args   []string
		want   string
	}{
		{"chats alone", chatOnly, nil, "it has no /v1/completions (HTTP 404): a gateway for chats alone cannot be measured"},
		{"no ids", textOnly, nil, "it refuses a prompt of token ids"},
		{"a stream that is held back", buffers, nil, "something between here and the engine buffers the stream"},
		{"a stream in one piece", oneChunk, nil, "something between here and the engine buffers the stream"},
		{"no row", nil, []string{"-backend=all"}, "say which one row the server of -attach is"},
		{"tiers", nil, []string{"-evict"}, "not ours to size"},
		{"nobody there", nil, []string{"-attach=engine=http://127.0.0.1:9"}, "asking what is served"},
		{"not a URL", nil, []string{"-attach=engine=localhost:8000"}, "want a URL such as"},
		{"a password", nil, []string{"-attach=engine=http://me:pw@localhost:8000"}, "no user or password in a URL"},
		{"a key in the query", nil, []string{"-attach=engine=http://localhost:8000/v1?key=k"}, "no query in the base of other URLs"},
		{"no engine", nil, []string{"-attach=metrics=http://localhost:8000"}, "want engine=URL"},
		{"a service that there is not", nil, []string{"-attach=cache=http://localhost:8000"}, "there are engine, lmcache, daser, metrics"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGateway(t, c.change, server)
			out, code, _ := attach(t, append([]string{"-attach=engine=" + g.URL, "-backend=engine-cache"}, c.args...)...)
			require.NotZero(t, code, out)
			require.Contains(t, out, c.want)
		})
	}
}
