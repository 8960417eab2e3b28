package probe

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A variant rewrites a page into another one that says the same.
type variant struct {
	name  string
	apply func(page string) string
}

func variants() []variant {
	all := []variant{
		{"labels added", eachSample(func(s sample) []sample {
			s.labels = append(s.labels, `pod="engine-a, {1}"`, `zone="\"x\"\n"`)
			return []sample{s}
		})},
		{"labels reordered", eachSample(func(s sample) []sample {
			s.labels = append([]string{`aa="0"`}, s.labels...)
			for i, j := 0, len(s.labels)-1; i < j; i, j = i+1, j-1 {
				s.labels[i], s.labels[j] = s.labels[j], s.labels[i]
			}
			return []sample{s}
		})},
		{"engines split", eachSample(func(s sample) []sample {
			a, b := s, s
			a.labels = append([]string{`rank="0"`}, s.labels...)
			b.labels = append([]string{`rank="1"`}, s.labels...)
			a.value, b.value = s.value/4, s.value-s.value/4
			return []sample{a, b}
		})},
		{"exponents", eachSample(func(s sample) []sample { s.format = 'e'; return []sample{s} })},
		{"integers", eachSample(func(s sample) []sample { s.format = 'f'; return []sample{s} })},
		{"timestamps", eachSample(func(s sample) []sample { s.timestamp = " 1796067007100"; return []sample{s} })},
		{"total added or dropped", renameTotal},
		{"no comments", func(page string) string {
			return keepLines(page, func(l string) bool { return !strings.HasPrefix(l, "#") })
		}},
		{"shuffled", shuffle},
		{"types wrong", func(page string) string {
			return strings.ReplaceAll(page, " counter\n", " unknown\n") + "# TYPE other stateset\n"
		}},
		{"CRLF", func(page string) string { return strings.ReplaceAll(page, "\n", "\r\n") }},
		{"neighbours", func(page string) string {
			return page + strings.Join([]string{
				`vllm:prefix_cache_hits_total_bucket{le="1.0"} 7`, `vllm:prefix_cache_hits_total_sum 7`,
				`vllm:mm_cache_hits_total{engine="0"} 9`, `vllm:prefix_cache_hits_created{engine="0"} 1.7e9`,
				`xvllm:prefix_cache_hits_total 5`, `vllm:prefix_cache_queries_total{engine="9"} NaN`,
				`llamacpp:prompt_tokens_total{slot="9"} +Inf`, "# EOF", "",
			}, "\n")
		}},
	}
	single := slices.Clone(all)
	chained := rand.New(rand.NewPCG(1, 2))
	for n := range 20 {
		var chain []variant
		for _, i := range chained.Perm(len(single))[:3] {
			if single[i].name != "CRLF" { // the others read \n
				chain = append(chain, single[i])
			}
		}
		name := fmt.Sprintf("chain %d", n)
		all = append(all, variant{name, func(page string) string {
			for _, v := range chain {
				page = v.apply(page)
			}
			return page
		}})
	}
	return all
}

type sample struct {
	name      string
	labels    []string // name="value", in order
	value     float64
	format    byte // of strconv.FormatFloat; 0: as Python writes it
	timestamp string
}

var (
	sampleLine = regexp.MustCompile(`^([a-z:_]+)(?:\{(.*)\})? (\S+)( \d+)?$`)
	oneLabel   = regexp.MustCompile(`[a-z_]+="(?:[^"\\]|\\.)*"`)
)

func eachSample(rewrite func(sample) []sample) func(string) string {
	return func(page string) string {
		var out []string
		for line := range strings.SplitSeq(strings.TrimSuffix(page, "\n"), "\n") {
			m := sampleLine.FindStringSubmatch(line)
			value, err := 0.0, error(nil)
			if m != nil {
				value, err = strconv.ParseFloat(m[3], 64)
			}
			if m == nil || err != nil {
				out = append(out, line)
				continue
			}
			for _, s := range rewrite(sample{m[1], oneLabel.FindAllString(m[2], -1), value, 0, m[4]}) {
				out = append(out, s.String())
			}
		}
		return strings.Join(out, "\n") + "\n"
	}
}

func (s sample) String() string {
	format := s.format
	if format == 0 {
		format = 'g'
	}
	line := s.name
	if len(s.labels) > 0 {
		line += "{" + strings.Join(s.labels, ",") + "}"
	}
	return line + " " + strconv.FormatFloat(s.value, format, -1, 64) + s.timestamp
}

var counterName = regexp.MustCompile(`(?m)^(# \w+ )?((?:vllm|llamacpp):[a-z_]+?)(_total)?([ {])`)

func renameTotal(page string) string {
	return counterName.ReplaceAllStringFunc(page, func(s string) string {
		m := counterName.FindStringSubmatch(s)
		switch {
		case m[3] == "_total":
			return m[1] + m[2] + m[4]
		case strings.HasSuffix(m[2], "_created") || strings.HasSuffix(m[2], "_sum") || strings.HasSuffix(m[2], "_bucket"):
			return s
		}
		return m[1] + m[2] + "_total" + m[4]
	})
}

func shuffle(page string) string {
	lines := strings.SplitAfter(strings.TrimSuffix(page, "\n"), "\n")
	lines[len(lines)-1] += "\n"
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	return strings.Join(lines, "")
}

func keepLines(page string, keep func(string) bool) string {
	var b strings.Builder
	for line := range strings.Lines(page) {
		if keep(line) {
			b.WriteString(line)
		}
	}
	return b.String()
}
