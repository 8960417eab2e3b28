package metric

import (
	"fmt"
	"math"
	"strings"
	"unicode"
)

// A Metric is one number of a benchmark line.
type Metric struct {
	Unit  string
	Value float64
}

// New makes a metric that is safe to print, or says why there is none. NaN and
// infinities would reach benchstat as numbers; all our quantities are at least
// 0, and a percentage is at most 100: beyond that something was counted wrong,
// which clamping would hide. A unit with white space makes testing.B panic.
func New(unit string, value float64) (Metric, error) {
	switch {
	case unit == "" || strings.ContainsFunc(unit, unicode.IsSpace):
		return Metric{}, fmt.Errorf("metric %q: a unit is one word", unit)
	case math.IsNaN(value) || math.IsInf(value, 0):
		return Metric{}, fmt.Errorf("metric %s: %v is not finite", unit, value)
	case value < 0:
		return Metric{}, fmt.Errorf("metric %s: %v is negative", unit, value)
	case strings.HasSuffix(unit, "%") && value > 100:
		return Metric{}, fmt.Errorf("metric %s: %v is more than all", unit, value)
	}
	return Metric{Unit: unit, Value: value}, nil
}

// list collects metrics; the first that cannot be printed stays as the error.
type list struct {
	metrics []Metric
	err     error
}

func (l *list) add(unit string, value float64) {
	m, err := New(unit, value)
	if err != nil {
		if l.err == nil {
			l.err = err
		}
		return
	}
	l.metrics = append(l.metrics, m)
}

// percent adds part of whole; of nothing there is no percentage.
func (l *list) percent(unit string, part, whole int) {
	if whole != 0 {
		l.add(unit, 100*float64(part)/float64(whole))
	}
}
