package engine

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// httpMetrics are the families of the web framework's instrumentation, which
// vLLM exports beside its own.
type httpMetrics struct {
	requests          *prometheus.CounterVec
	request, response *prometheus.SummaryVec // sizes by content-length; streams have none
	precise           prometheus.Observer
	duration          *prometheus.HistogramVec
}

func newHTTPMetrics(f families) httpMetrics {
	return httpMetrics{
		requests: f.counters("http_requests", "Total number of requests by method, status and handler.", "handler", "method", "status"),
		request:  f.summaries("http_request_size_bytes", "Content length of incoming requests by handler. Only value of header is respected. Otherwise ignored. No percentile calculated. ", "handler"),
		response: f.summaries("http_response_size_bytes", "Content length of outgoing responses by handler. Only value of header is respected. Otherwise ignored. No percentile calculated. ", "handler"),
		precise: f.histogram("http_request_duration_highr_seconds", "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
			[]float64{.01, .025, .05, .075, .1, .25, .5, .75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60}),
		duration: f.histograms("http_request_duration_seconds", "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
			[]float64{.1, .5, 1}, "handler", "method"),
	}
}

// observe counts an answered request. handler is the path of its route.
func (m httpMetrics) observe(handler string, r *http.Request, w *statusWriter, took time.Duration) {
	m.requests.WithLabelValues(handler, r.Method, strconv.Itoa(w.status/100)+"xx").Inc()
	m.request.WithLabelValues(handler).Observe(float64(max(0, r.ContentLength)))
	size, _ := strconv.Atoi(w.Header().Get("Content-Length")) // 0 where there is none
	m.response.WithLabelValues(handler).Observe(float64(size))
	m.precise.Observe(took.Seconds())
	m.duration.WithLabelValues(handler, r.Method).Observe(took.Seconds())
}

// A statusWriter remembers what was answered.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
