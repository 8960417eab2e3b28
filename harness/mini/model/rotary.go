package model

import "math"

// A rotary holds the sines and cosines of every position of the context, half
// a head apiece (Su et al. 2021, arXiv 2104.09864, in the pairing of Llama:
// value i of a head turns with value i+HeadDim/2).
type rotary struct {
	half     int
	sin, cos []float32 // Context × half
}

func newRotary(c Config) rotary {
	half := c.HeadDim / 2
	r := rotary{half, make([]float32, c.Context*half), make([]float32, c.Context*half)}
	for i := range half {
		frequency := math.Pow(c.RopeTheta, -float64(2*i)/float64(c.HeadDim))
		for position := range c.Context {
			sin, cos := math.Sincos(float64(position) * frequency)
			r.sin[position*half+i], r.cos[position*half+i] = float32(sin), float32(cos)
		}
	}
	return r
}

// turn applies the rotation of a position to each head in heads.
func (r rotary) turn(heads []float32, position int) {
	sin := r.sin[position*r.half : (position+1)*r.half]
	cos := r.cos[position*r.half : (position+1)*r.half]
	for at := 0; at < len(heads); at += 2 * r.half {
		low, high := heads[at:at+r.half], heads[at+r.half:at+2*r.half]
		for i, x := range low {
			y := high[i]
			low[i] = x*cos[i] - y*sin[i]
			high[i] = x*sin[i] + y*cos[i]
		}
	}
}

// turnBack undoes turn.
func (r rotary) turnBack(heads []float32, position int) {
	sin := r.sin[position*r.half : (position+1)*r.half]
	cos := r.cos[position*r.half : (position+1)*r.half]
	for at := 0; at < len(heads); at += 2 * r.half {
		low, high := heads[at:at+r.half], heads[at+r.half:at+2*r.half]
		for i, x := range low {
			y := high[i]
			low[i] = x*cos[i] + y*sin[i]
			high[i] = y*cos[i] - x*sin[i]
		}
	}
}
