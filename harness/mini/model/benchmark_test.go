package model

import (
	"fmt"
	"testing"
)

// BenchmarkPrefill measures a prompt cold and with all but its last token
// reused.
func BenchmarkPrefill(b *testing.B) {
	m := newModel(b, Mini())
	for _, prompt := range []int{1024, 4000} {
		for _, reused := range []int{0, prompt - 1} {
			b.Run(fmt.Sprintf("prompt=%d/reused=%d", prompt, reused), func(b *testing.B) {
				tokens := randomTokens(m, prompt, 1)
				k := newCache(m, 128, prompt)
				k.extend(b, tokens)
				for b.Loop() {
					k.length = reused
					k.extend(b, tokens[reused:])
				}
				b.ReportMetric(float64(m.FLOPs(reused, prompt-reused))*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkDecode measures one step of a batch, each sequence 1,024 tokens
// long.
func BenchmarkDecode(b *testing.B) {
	m := newModel(b, Mini())
	for _, sequences := range []int{1, 4} {
		b.Run(fmt.Sprintf("sequences=%d", sequences), func(b *testing.B) {
			batch := make([]Sequence, sequences)
			for i := range batch {
				k := newCache(m, 128, 1025)
				k.extend(b, randomTokens(m, 1024, uint64(i)))
				batch[i] = Sequence{Tokens: []int32{1}, Start: 1024, Blocks: k.blocks, Logits: make([]float32, m.config.Vocab)}
			}
			for b.Loop() {
				if _, err := m.Forward(128, batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNew measures the construction of the weights.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		newModel(b, Mini())
	}
}
