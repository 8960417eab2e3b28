package tiny

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
)

// Types of values in a GGUF file. Source: the format's own description, version 3.
const (
	typeUint32  = 4
	typeInt32   = 5
	typeFloat32 = 6
	typeBool    = 7
	typeString  = 8
	typeArray   = 9

	alignment = 32
)

// A gguf is the head of a GGUF file in the making.
type gguf struct {
	bytes.Buffer
	keys uint64
}

func (g *gguf) put(values ...any) {
	for _, v := range values {
		if s, ok := v.(string); ok {
			g.put(uint64(len(s)))
			g.WriteString(s)
			continue
		}
		_ = binary.Write(g, binary.LittleEndian, v) // numbers into memory cannot fail
	}
}

func (g *gguf) key(name string, kind uint32, value any) {
	g.keys++
	g.put(name, kind, value)
}

func (g *gguf) array(name string, kind uint32, values ...any) {
	g.keys++
	g.put(name, uint32(typeArray), kind, uint64(len(values)))
	g.put(values...)
}

// writeGGUF writes the tensors as float32, with what llama.cpp wants to know
// about a Llama and its tokenizer.
func writeGGUF(path string, tensors []tensor) (err error) {
	var head gguf
	head.key("general.architecture", typeString, "llama")
	head.key("general.name", typeString, "tiny")
	head.key("general.file_type", typeUint32, uint32(0))
	for _, k := range []struct {
		name  string
		value uint32
	}{
		{"llama.context_length", Context},
		{"llama.embedding_length", width},
		{"llama.block_count", layers},
		{"llama.feed_forward_length", inner},
		{"llama.attention.head_count", heads},
		{"llama.attention.head_count_kv", kvHeads},
		{"llama.rope.dimension_count", headDim},
		{"llama.vocab_size", Vocab},
		{"tokenizer.ggml.bos_token_id", beginToken},
		{"tokenizer.ggml.eos_token_id", endToken},
		{"tokenizer.ggml.unknown_token_id", unknown},
		{"tokenizer.ggml.padding_token_id", padToken},
	} {
		head.key(k.name, typeUint32, k.value)
	}
	head.key("llama.attention.layer_norm_rms_epsilon", typeFloat32, float32(normEps))
	head.key("llama.rope.freq_base", typeFloat32, float32(ropeBase))
	head.key("tokenizer.ggml.model", typeString, "llama")
	head.key("tokenizer.ggml.pre", typeString, "default")
	head.key("tokenizer.ggml.add_bos_token", typeBool, false)
	head.key("tokenizer.chat_template", typeString, chatTemplate)
	head.vocabulary()

	at := uint64(0)
	for _, t := range tensors {
		dims := []uint64{uint64(t.columns), uint64(t.rows)}
		if t.rows == 0 {
			dims = dims[:1]
		}
		head.put(t.gguf, uint32(len(dims)), dims, uint32(0), at)
		at += uint64(4 * t.len()) // every tensor is a multiple of the alignment
	}

	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriter(file) // keeps its first error until Flush
	var start gguf
	start.put([]byte("GGUF"), uint32(3), uint64(len(tensors)), head.keys)
	start.Write(head.Bytes())
	start.Write(make([]byte, -start.Len()&(alignment-1)))
	_, _ = out.Write(start.Bytes())
	for _, t := range tensors {
		var data []byte
		for _, value := range t.rotated() {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value))
		}
		_, _ = out.Write(data)
	}
	return out.Flush()
}

// vocabulary are the tokens in the manner of SentencePiece, which writes the
// blank before a word as U+2581.
func (g *gguf) vocabulary() {
	const normal, control, isUnknown = int32(1), int32(3), int32(2)
	texts, kinds, scores := make([]any, Vocab), make([]any, Vocab), make([]any, Vocab)
	for id := range Vocab {
		texts[id], kinds[id], scores[id] = "\u2581"+word(id), normal, -float32(id)
		if id < len(special) {
			texts[id], kinds[id] = word(id), control
		}
	}
	kinds[unknown] = isUnknown
	g.array("tokenizer.ggml.tokens", typeString, texts...)
	g.array("tokenizer.ggml.scores", typeFloat32, scores...)
	g.array("tokenizer.ggml.token_type", typeInt32, kinds...)
}

// rotated are the values in llama.cpp's order. It rotates neighbouring pairs of
// a head, where Hugging Face rotates a value with the one half a head away: the
// rows of queries and keys are sorted accordingly.
func (t tensor) rotated() []float32 {
	values := t.values()
	if t.heads == 0 {
		return values
	}
	sorted := make([]float32, 0, len(values))
	size := t.rows / t.heads
	for row := range t.rows {
		head, within := row/size, row%size
		from := head*size + within%2*size/2 + within/2
		sorted = append(sorted, values[from*t.columns:(from+1)*t.columns]...)
	}
	return sorted
}
