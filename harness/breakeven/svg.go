package breakeven

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// A Plot is what a picture of a Result shows.
type Plot struct {
	Title     string
	Result    Result
	Predicted *Polynomial // of the transfer alone; nil: not known
	Rate      string      // what that is from, in words
}

const (
	width, height = 720.0, 440.0
	left, bottom  = 80.0, 60.0
	top, right    = 60.0, 30.0
)

// SVG is the picture, complete, with nothing that is loaded from elsewhere: time
// over hit length, both logarithmic, the measurements as dots and the fits as
// lines.
func SVG(p Plot) string {
	r := p.Result
	first, last := float64(r.Points[0].Tokens), float64(r.Points[len(r.Points)-1].Tokens)
	if r.Tokens > 0 {
		first, last = min(first, float64(r.Tokens)), max(last, float64(r.Tokens))
	}
	x := axis{first / 1.3, last * 1.3, left, width - right}
	least, most := math.Inf(1), 0.0
	for _, q := range r.Points {
		for _, s := range []float64{q.Recompute.Seconds(), q.Load.Seconds()} {
			least, most = min(least, s), max(most, s)
		}
	}
	y := axis{least / 3, most * 1.5, height - bottom, top}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="white"/>`+"\n", width, height)
	label(&b, left, 24, "start", 16, p.Title)
	label(&b, left, 44, "start", 13, "on this machine "+r.String())
	for _, n := range x.ticks() {
		fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f" stroke="#ddd"/>`, x.at(n), height-bottom, top)
		label(&b, x.at(n), height-bottom+18, "middle", 12, fmt.Sprintf("%.0f", n))
	}
	for _, s := range y.ticks() {
		fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="#ddd"/>`, left, y.at(s), width-right)
		label(&b, left-6, y.at(s)+4, "end", 12, fmt.Sprintf("%.3g ms", s*1000))
	}
	label(&b, (left+width-right)/2, height-bottom+40, "middle", 13, "tokens that hit")
	if r.Tokens > 0 {
		fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f" stroke="#333" stroke-dasharray="5 4"/>`+"\n", x.at(float64(r.Tokens)), height-bottom, top)
	}
	line(&b, x, y, r.Recompute, "#c0392b", "")
	line(&b, x, y, r.Load, "#2471a3", "")
	key := []struct{ text, color string }{{"recompute", "#c0392b"}, {"load", "#2471a3"}}
	if p.Predicted != nil {
		line(&b, x, y, *p.Predicted, "#27ae60", "2 3")
		key = append(key, struct{ text, color string }{"transfer alone: " + p.Rate, "#27ae60"})
	}
	for _, q := range r.Points {
		dot(&b, x.at(float64(q.Tokens)), y.at(q.Recompute.Seconds()), "#c0392b")
		dot(&b, x.at(float64(q.Tokens)), y.at(q.Load.Seconds()), "#2471a3")
	}
	for i, k := range key {
		fmt.Fprintf(&b, `<rect x="%.0f" y="%.0f" width="14" height="4" fill="%s"/>`, left+10, top+8+18*float64(i), k.color)
		label(&b, left+30, top+14+18*float64(i), "start", 12, k.text)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// An axis is logarithmic.
type axis struct{ from, to, start, end float64 }

func (a axis) at(v float64) float64 {
	return a.start + (a.end-a.start)*math.Log(v/a.from)/math.Log(a.to/a.from)
}

// ticks are 1, 2 and 5 times the powers of ten in the range.
func (a axis) ticks() (values []float64) {
	for e := math.Floor(math.Log10(a.from)); e <= math.Log10(a.to); e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); v >= a.from && v <= a.to {
				values = append(values, v)
			}
		}
	}
	return values
}

// line draws a fit, where it is within the picture.
func line(b *strings.Builder, x, y axis, p Polynomial, color, dashes string) {
	var path strings.Builder
	command := "M"
	const steps = 120
	for i := range steps + 1 {
		n := x.from * math.Pow(x.to/x.from, float64(i)/steps)
		s := p.At(n)
		if s < y.from || s > y.to {
			command = "M"
			continue
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", command, x.at(n), y.at(s))
		command = "L"
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`+"\n", path.String(), color, dashes)
}

func dot(b *strings.Builder, x, y float64, color string) {
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`+"\n", x, y, color)
}

func label(b *strings.Builder, x, y float64, anchor string, size int, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>`+"\n", x, y, anchor, size, html.EscapeString(text))
}
