package model

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// A matrix is dense and row-major.
type matrix struct {
	rows, columns int
	data          []float32
}

func newMatrix(rows, columns int) matrix {
	return matrix{rows, columns, make([]float32, rows*columns)}
}

// view is the matrix of the given shape over data, whose rows lie stride apart.
func view(rows, columns, stride int, data []float32) blas32.General {
	return blas32.General{Rows: rows, Cols: columns, Stride: stride, Data: data}
}

func (m matrix) view() blas32.General { return view(m.rows, m.columns, m.columns, m.data) }

// multiply computes c = a·b + beta·c, both sides as stored: the only form of
// gonum's Sgemm that keeps the bits of a row whatever the other rows are. It
// skips a zero element of a together with the row of b that it would scale,
// which hides a NaN there; see exp and attend for where that matters.
func multiply(a, b blas32.General, beta float32, c blas32.General) {
	blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, a, b, beta, c)
}

// project computes into = in·w for rows of w.rows values and returns the
// floating-point operations that it took.
func (w matrix) project(in []float32, rows int, into []float32) int64 {
	multiply(view(rows, w.rows, w.rows, in), w.view(), 0, view(rows, w.columns, w.columns, into))
	return 2 * int64(rows) * int64(w.rows) * int64(w.columns)
}

// normalize writes the RMSNorm of each row of in, width values wide, to into.
func normalize(in []float32, width int, into []float32) {
	const epsilon = 1e-6
	for at := 0; at < len(in); at += width {
		row, normed := in[at:at+width], into[at:at+width]
		var sum float64
		for _, x := range row {
			sum += float64(x) * float64(x)
		}
		scale := float32(1 / math.Sqrt(sum/float64(width)+epsilon))
		for i, x := range row {
			normed[i] = x * scale
		}
	}
}

// add adds each element of b to a.
func add(a, b []float32) {
	for i, x := range b {
		a[i] += x
	}
}

// gate writes silu(gate)·up of each row of gateUp, which holds width gates and
// then width ups, to into.
func gate(gateUp []float32, width int, into []float32) {
	for at := 0; at < len(into); at += width {
		row := gateUp[2*at : 2*(at+width)]
		gates, ups, gated := row[:width], row[width:], into[at:at+width]
		for i, g := range gates {
			gated[i] = g / (1 + exp(-g)) * ups[i]
		}
	}
}

// smallest is the least normal float32, about 1.2e-38.
const smallest = 0x1p-126

// exp returns e^x within 3 units in the last place; the library's is in
// float64 and several times slower, and a long prompt takes a hundred million.
// It is never zero: below about −87 it returns the smallest normal number,
// which vanishes beside any other weight, but is not skipped by multiply, so
// that a NaN behind it arrives. NaN stays NaN, and above 88 it is +Inf.
func exp(x float32) float32 {
	if !(x > -87) {
		if x != x {
			return x
		}
		return smallest
	}
	if x > 88 {
		return float32(math.Inf(1))
	}
	const (
		rounder = 3 << 22   // adding it to a small float32 rounds that to an integer, kept in the low bits
		ln2High = 0x1.63p-1 // ten bits of ln 2, so that n·ln2High is exact
		ln2Low  = math.Ln2 - ln2High
	)
	shifted := x*math.Log2E + rounder
	n := shifted - rounder
	r := x - n*ln2High - n*ln2Low // x = n·ln 2 + r, |r| ≤ ln 2 / 2
	p := 1 + r*(1+r*(1./2+r*(1./6+r*(1./24+r*(1./120+r*(1./720))))))
	power := math.Float32bits(shifted) - math.Float32bits(rounder)
	return p * math.Float32frombits((power+127)<<23)
}
