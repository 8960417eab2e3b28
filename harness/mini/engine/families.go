package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// families makes metric families as vLLM's Python client shows them: a counter
// is called …_total, and each counter, histogram and summary has a gauge
// …_created with the time at which each of its series began.
type families struct {
	registry *prometheus.Registry
	prefix   string
	labels   prometheus.Labels // on every series
}

// with replaces the labels that every series has.
func (f families) with(labels prometheus.Labels) families {
	f.labels = labels
	return f
}

func (f families) counter(name, help string) prometheus.Counter {
	return f.counters(name, help).WithLabelValues()
}

// counters makes a counter with labels; its series appear when they are used.
func (f families) counters(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: f.prefix + name + "_total", Help: help, ConstLabels: f.labels,
	}, labels)
	f.register(vec, name, help)
	return vec
}

// countersAtZero makes a counter with one label that shows these values of it
// from the start.
func (f families) countersAtZero(name, help, label string, values ...string) *prometheus.CounterVec {
	vec := f.counters(name, help, label)
	for _, v := range values {
		vec.WithLabelValues(v)
	}
	return vec
}

func (f families) histogram(name, help string, buckets []float64) prometheus.Observer {
	return f.histograms(name, help, buckets).WithLabelValues()
}

func (f families) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: f.prefix + name, Help: help, ConstLabels: f.labels, Buckets: buckets,
	}, labels)
	f.register(vec, name, help)
	return vec
}

// summaries makes a summary without quantiles: a count and a sum.
func (f families) summaries(name, help string, labels ...string) *prometheus.SummaryVec {
	vec := prometheus.NewSummaryVec(prometheus.SummaryOpts{
		Name: f.prefix + name, Help: help, ConstLabels: f.labels,
	}, labels)
	f.register(vec, name, help)
	return vec
}

func (f families) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: f.prefix + name, Help: help, ConstLabels: f.labels,
	}, labels)
	f.registry.MustRegister(vec)
	return vec
}

func (f families) register(c prometheus.Collector, name, help string) {
	f.registry.MustRegister(c, createdGauges{of: c, name: f.prefix + name + "_created", help: help})
}

// createdGauges shows when the series of a collector began. The Go client
// knows, but writes it in another format than vLLM's.
type createdGauges struct {
	of         prometheus.Collector
	name, help string
}

// Describe says nothing: the labels are those of what is collected.
func (createdGauges) Describe(chan<- *prometheus.Desc) {}

func (c createdGauges) Collect(ch chan<- prometheus.Metric) {
	series := make(chan prometheus.Metric)
	go func() { // ends when all series are read, below
		defer close(series)
		c.of.Collect(series)
	}()
	for s := range series {
		var m dto.Metric
		if err := s.Write(&m); err != nil {
			ch <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
			continue
		}
		var names, values []string
		for _, l := range m.GetLabel() {
			names, values = append(names, l.GetName()), append(values, l.GetValue())
		}
		desc := prometheus.NewDesc(c.name, c.help, names, nil)
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, seconds(began(&m)), values...)
	}
}

func began(m *dto.Metric) time.Time {
	switch {
	case m.Counter != nil:
		return m.Counter.GetCreatedTimestamp().AsTime()
	case m.Histogram != nil:
		return m.Histogram.GetCreatedTimestamp().AsTime()
	default:
		return m.Summary.GetCreatedTimestamp().AsTime()
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
