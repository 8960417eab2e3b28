package tiny

import (
	"fmt"
	"math"
)

// A tensor is a matrix of rows × columns, or a vector where rows is 0. Names
// are Hugging Face's and llama.cpp's. Values are drawn when they are asked for:
// the same ones each time.
type tensor struct {
	name, gguf    string
	rows, columns int
	heads         int     // of a matrix whose rows are rotated by position; 0: they are not
	scale         float64 // standard deviation of the values; 0: all are 1
	seed          uint64
}

func (t tensor) len() int { return max(t.rows, 1) * t.columns }

// values are the values by rows, each exactly representable in bfloat16.
func (t tensor) values() []float32 {
	values := make([]float32, t.len())
	state := t.seed
	for i := range values {
		values[i] = 1
		if t.scale != 0 {
			state += 0x9e3779b97f4a7c15
			values[i] = rounded(float32(float64(t.scale * uniform(mix(state)))))
		}
	}
	return values
}

// uniform is a number with mean 0 and variance 1. The conversions keep a
// compiler from fusing the operations, which would round differently on
// another machine.
func uniform(bits uint64) float64 {
	unit := float64(bits>>11) / (1 << 53) // [0, 1)
	return float64(float64(2*unit)-1) * math.Sqrt(3)
}

// mix is SplitMix64's output function.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// rounded is the nearest bfloat16, ties to even.
func rounded(f float32) float32 {
	bits := math.Float32bits(f)
	bits += 0x7fff + bits>>16&1
	return math.Float32frombits(bits &^ 0xffff)
}

// tensors are those of the model.
func tensors() []tensor {
	var all []tensor
	add := func(name, gguf string, rows, columns int, scale float64) {
		all = append(all, tensor{
			name: name, gguf: gguf, rows: rows, columns: columns, scale: scale, seed: mix(uint64(len(all)) + 0x7669),
		})
	}
	matrix := func(name, gguf string, rows, columns int, scale float64) {
		add(name, gguf, rows, columns, scale/math.Sqrt(float64(columns)))
	}
	add("model.embed_tokens.weight", "token_embd.weight", Vocab, width, 1)
	for n := range layers {
		layer, block := fmt.Sprintf("model.layers.%d.", n), fmt.Sprintf("blk.%d.", n)
		add(layer+"input_layernorm.weight", block+"attn_norm.weight", 0, width, 0)
		add(layer+"post_attention_layernorm.weight", block+"ffn_norm.weight", 0, width, 0)
		matrix(layer+"self_attn.q_proj.weight", block+"attn_q.weight", heads*headDim, width, 2)
		all[len(all)-1].heads = heads
		matrix(layer+"self_attn.k_proj.weight", block+"attn_k.weight", kvHeads*headDim, width, 2)
		all[len(all)-1].heads = kvHeads
		matrix(layer+"self_attn.v_proj.weight", block+"attn_v.weight", kvHeads*headDim, width, 1)
		matrix(layer+"self_attn.o_proj.weight", block+"attn_output.weight", width, heads*headDim, 2)
		matrix(layer+"mlp.gate_proj.weight", block+"ffn_gate.weight", inner, width, 1)
		matrix(layer+"mlp.up_proj.weight", block+"ffn_up.weight", inner, width, 1)
		matrix(layer+"mlp.down_proj.weight", block+"ffn_down.weight", width, inner, 1)
	}
	add("model.norm.weight", "output_norm.weight", 0, width, 0)
	matrix("lm_head.weight", "output.weight", Vocab, width, 2)
	return all
}
