package engine

import (
	"net/http"
	"slices"
	"time"
)

// A route is what one path answers.
type route struct {
	methods []string
	handle  http.HandlerFunc
	quiet   bool // not counted in http_requests_total, as observed
}

// A router finds the route of a path. Unknown paths and methods are answered
// in the shape of vLLM's web framework, which is not that of its API.
type router struct {
	routes  map[string]route
	metrics httpMetrics
}

// Handler serves the API, the admin endpoints and /metrics.
func (e *Engine) Handler() http.Handler {
	get, post, both := []string{http.MethodGet}, []string{http.MethodPost}, []string{http.MethodGet, http.MethodPost}
	return &router{metrics: e.metrics.http, routes: map[string]route{
		"/v1/completions":      {methods: post, handle: e.completions},
		"/v1/chat/completions": {methods: post, handle: e.chat},
		"/v1/models":           {methods: get, handle: e.models},
		"/tokenize":            {methods: post, handle: e.tokenize},
		"/detokenize":          {methods: post, handle: e.detokenize},
		"/reset_prefix_cache":  {methods: post, handle: e.reset},
		"/update_weights":      {methods: post, handle: e.updateWeights},
		"/health":              {methods: get, handle: e.health, quiet: true},
		"/ping":                {methods: both, handle: e.health, quiet: true},
		"/version":             {methods: get, handle: e.version, quiet: true},
		"/metrics":             {methods: get, handle: e.metrics.handler().ServeHTTP, quiet: true},
	}}
}

func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, ok := rt.routes[r.URL.Path]
	if route.quiet {
		rt.serve(w, r, route, ok)
		return
	}
	path := r.URL.Path
	if !ok {
		path = "none"
	}
	counted := &statusWriter{ResponseWriter: w}
	start := time.Now()
	rt.serve(counted, r, route, ok)
	rt.metrics.observe(path, r, counted, time.Since(start))
}

func (rt *router) serve(w http.ResponseWriter, r *http.Request, route route, ok bool) {
	type detail struct {
		Detail string `json:"detail"`
	}
	switch {
	case !ok:
		writeJSON(w, http.StatusNotFound, detail{"Not Found"})
	case !slices.Contains(route.methods, r.Method):
		w.Header().Set("Allow", route.methods[0])
		writeJSON(w, http.StatusMethodNotAllowed, detail{"Method Not Allowed"})
	default:
		route.handle(w, r)
	}
}
