package engine

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPythonFault(t *testing.T) {
	for _, c := range []struct {
		text string
		at   int
		what string
	}{
		{``, 0, "Expecting value"},
		{`{"a": }`, 6, "Expecting value"},
		{`{"a" 1}`, 5, "Expecting ':' delimiter"},
		{`{"a": 1 "b": 2}`, 8, "Expecting ',' delimiter"},
		{`[1, 2`, 5, "Expecting ',' delimiter"},
		{`[1,]`, 3, "Expecting value"},
		{`{a: 1}`, 1, "Expecting property name enclosed in double quotes"},
		{`{"a": 1} x`, 9, "Extra data"},
		{`"abc`, 0, "Unterminated string starting at"},
		{`["é", "abc`, 6, "Unterminated string starting at"},
		{"\"a\nb\"", 2, "Invalid control character at"},
		{`"\x"`, 1, `Invalid \escape`},
		{`"\u12g4"`, 2, `Invalid \uXXXX escape`},
		{`-`, 0, "Expecting value"},
		{`01`, 1, "Extra data"},
		{`1.`, 1, "Extra data"},
		{`nul`, 0, "Expecting value"},
	} {
		require.Equal(t, &jsonFault{c.at, c.what}, pythonFault(c.text), "%s", c.text)
	}
	for _, good := range []string{`{}`, `[]`, ` {"a": [1, -2.5e+3, "\u00e9\n", true, false, null, {"b": {}}]} `, `0`, `"x"`} {
		require.Nil(t, pythonFault(good), good)
	}
	require.Contains(t, pythonFault(strings.Repeat("[", 5000)).what, "recursion")
}

// What Python's rules let pass is JSON to Go too, and the other way round.
func FuzzPythonFault(f *testing.F) {
	for _, seed := range []string{`{"a": [1, 2.5, "x\n"], "b": null}`, `[1,`, `"\ud800"`, `-0.0e-1`, `{"":{}}`, "\"\x7f\"", `1e`, ` `} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fault := pythonFault(text)
		require.Equal(t, json.Valid([]byte(text)), fault == nil, "%+v", fault)
		if fault != nil {
			require.LessOrEqual(t, fault.at, len(text))
		}
	})
}

func TestStopText(t *testing.T) {
	for _, c := range []struct {
		name  string
		stops []string
		texts []string
		want  string
		stop  string
	}{
		{"nothing to look for", nil, []string{" w1", " w2"}, " w1 w2", ""},
		{"inside one token", []string{"w2"}, []string{" w1", " w2", " w3"}, " w1 ", "w2"},
		{"across tokens", []string{"1 w2 w"}, []string{" w1", " w2", " w3"}, " w", "1 w2 w"},
		{"the first in the text wins", []string{"3", "2"}, []string{" w123"}, " w1", "2"},
		{"never complete", []string{"w3 w4"}, []string{" w1", " w3", " w"}, " w1 w3 w", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStopText(c.stops)
			shown, stop := "", ""
			for _, text := range c.texts {
				show, which, stopped := s.add(text, true)
				shown += show
				if stopped {
					stop = which
					break
				}
			}
			require.Equal(t, c.want, shown+s.flush())
			require.Equal(t, c.stop, stop)
		})
	}
}

// However requests come and go, the pool's books balance: no block is lost,
// shared by mistake, or findable under what it no longer holds.
func TestPoolBooks(t *testing.T) {
	const size = 20
	p := newPool(size)
	r := rand.New(rand.NewPCG(1, 2))
	type holding struct{ blocks []*block }
	var held []holding
	for range 2000 {
		if len(held) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(held))
			p.release(held[i].blocks)
			held = append(held[:i], held[i+1:]...)
		} else {
			var keys []blockKey
			key := rootKey("m", "")
			for range r.IntN(6) {
				key = key.chain([]int32{r.Int32N(2)}) // few contents, so that many hit
				keys = append(keys, key)
			}
			total := len(keys) + r.IntN(3)
			before := p.free
			blocks, hits := p.reserve(keys, total)
			if blocks == nil {
				require.Equal(t, before, p.free, "nothing was taken")
				continue
			}
			require.Len(t, blocks, total)
			for i, b := range blocks {
				if i < hits {
					require.Equal(t, keys[i], b.key)
				} else {
					require.Equal(t, 1, b.refs, "an empty block belongs to one")
					require.False(t, b.cached)
				}
				if i < len(keys) {
					p.publish(b, keys[i])
				}
			}
			held = append(held, holding{blocks})
		}
		refs := map[*block]int{}
		for _, h := range held {
			for _, b := range h.blocks {
				refs[b]++
			}
		}
		require.Len(t, refs, p.used())
		free := 0
		for b := p.list.next; b != &p.list; b = b.next {
			free++
			require.Zero(t, refs[b])
		}
		require.Equal(t, p.free, free)
		for k, b := range p.byKey {
			require.True(t, b.cached && b.key == k)
		}
	}
	for _, h := range held {
		require.False(t, p.forget() && len(h.blocks) > 0, "blocks are in use")
		p.release(h.blocks)
	}
	require.True(t, p.forget())
	require.Empty(t, p.byKey)
}

func TestKeysDependOnAllBefore(t *testing.T) {
	a := rootKey("m", "").chain([]int32{1, 2})
	require.Equal(t, a, rootKey("m", "").chain([]int32{1, 2}))
	for name, b := range map[string]blockKey{
		"salt":    rootKey("m", "s").chain([]int32{1, 2}),
		"weights": rootKey("n", "").chain([]int32{1, 2}),
		"order":   rootKey("m", "").chain([]int32{2, 1}),
		"length":  rootKey("m", "").chain([]int32{1, 2, 0}),
		"parent":  rootKey("m", "").chain([]int32{9}).chain([]int32{1, 2}),
	} {
		require.NotEqual(t, a, b, name)
	}
}

// A flushWriter checks that each event goes out at once: one write, one flush.
type flushWriter struct {
	*httptest.ResponseRecorder
	t       *testing.T
	pending int
	flushes int
	stuck   chan struct{} // nil: takes everything; else every write waits for it
}

func (w *flushWriter) Write(b []byte) (int, error) {
	if w.stuck != nil {
		<-w.stuck
	}
	w.pending++
	require.Equal(w.t, 1, w.pending, "the event before was not flushed")
	return w.ResponseRecorder.Write(b)
}

func (w *flushWriter) Flush() {
	w.pending = 0
	w.flushes++
}

func completionRequest(t *testing.T, body object) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(marshal(t, body)))
	r.Header.Set("Content-Type", "application/json")
	return r
}

func TestEveryTokenIsFlushed(t *testing.T) {
	w := &flushWriter{ResponseRecorder: httptest.NewRecorder(), t: t}
	newEngine(t, nil).Handler().ServeHTTP(w, completionRequest(t, ask(prompt(1, 20))))
	require.Equal(t, 1+8+1+1, w.flushes, "header, tokens, usage, [DONE]")
	require.Zero(t, w.pending)
}

// A client that does not read holds up nobody, and not even its own sequence.
func TestSlowReaderBlocksNobody(t *testing.T) {
	e := newEngine(t, func(c *Config) { c.MaxSeqs = 1 })
	stuck := make(chan struct{})
	w := &flushWriter{ResponseRecorder: httptest.NewRecorder(), t: t, stuck: stuck}
	r := completionRequest(t, ask(prompt(1, 20)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Handler().ServeHTTP(w, r)
	}()
	eventually(t, func() bool { return series(t, e, "vllm:request_success_total") == 1 }, "its sequence ends all the same")
	require.Len(t, complete(t, e, ask(prompt(2, 20))).tokens, 8)
	close(stuck)
	<-done
	require.Len(t, read(t, events(t, w.Body)[:9]).tokens, 8)
}

func TestRequestIDs(t *testing.T) {
	e := newEngine(t, nil)
	r := completionRequest(t, ask(prompt(1, 5)).with(whole))
	r.Header.Set("X-Request-Id", `mine"<1>`)
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, r)
	require.Contains(t, w.Body.String(), `{"id":"cmpl-mine\"<1>",`)
	require.Regexp(t, `^\{"id":"cmpl-[0-9a-f]{16}"`, post(t, e, "/v1/completions", ask(prompt(1, 5)).with(whole)).Body.String())
}

// A block that a running sequence holds costs the next one nothing.
func TestSharedBlocksCostNothing(t *testing.T) {
	p := newPool(4)
	keys := []blockKey{rootKey("a", ""), rootKey("b", "")}
	first, _ := p.reserve(nil, 3)
	p.publish(first[0], keys[0])
	p.publish(first[1], keys[1])
	second, hits := p.reserve(keys, 3)
	require.Equal(t, 2, hits)
	require.Equal(t, first[:2], second[:2])
	third, _ := p.reserve(keys, 3)
	require.Nil(t, third, "no block is left")
	require.Equal(t, 4, p.used())
}
