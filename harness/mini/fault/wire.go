package fault

import (
	"context"
	"errors"
	"net/http"
)

// healthyChunks is how many chunks of a stream are let through before a fault
// strikes in its middle; a chunk with a finish reason never is.
const healthyChunks = 2

// errBroken is what the engine gets for writing to a stream that was broken.
var errBroken = errors.New("the stream was broken by a planted fault")

// WrapHandler returns the engine's handler with the faults of the wire that
// are planted at the time of each request, and of each chunk of a stream.
func (i *Injector) WrapHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case i.isDead() && path == "/health":
			w.WriteHeader(http.StatusServiceUnavailable)
		case i.isDead():
			abort()
		case path == "/reset_prefix_cache" && i.Has(ResetNoop):
			answer(w, `{"success":true}`)
		case path == "/reset_prefix_cache" && i.Has(ResetFalse):
			answer(w, `{"success":false}`)
		case path == "/update_weights" && i.Has(StaleWeights):
			r = r.Clone(r.Context())
			r.URL.RawQuery = "reset_cache=false"
			next.ServeHTTP(w, r)
		case path == "/metrics":
			i.metrics(w, r, next)
		case path == "/v1/completions" || path == "/v1/chat/completions":
			i.completion(w, r, next)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// abort closes the connection under the client, without an end of the answer.
func abort() { panic(http.ErrAbortHandler) }

// answer has nobody to report a failed write to but the client that left.
func answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(body))
}

func (i *Injector) completion(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if i.drops() {
		abort()
	}
	if i.Has(ShortOutput) || i.Has(DroppedPrompt) {
		if err := i.rewrite(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	if i.Has(ForeignTraffic) {
		i.foreign(r.Context(), next)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &stream{inner: w, injector: i, client: r.Context(), cancel: cancel}
	next.ServeHTTP(s, r.WithContext(ctx))
	s.end()
}
