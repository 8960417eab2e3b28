package model_test

import (
	"fmt"
	"slices"

	"github.com/kvproof/kvproof/harness/mini/model"
)

// A prompt of 40 tokens, cold and with its first two blocks reused: the same
// answer for less work.
func Example() {
	m, err := model.New(model.Nano())
	if err != nil {
		fmt.Println(err)
		return
	}
	const blockSize = 16
	newBlock := func() []float32 { return make([]float32, m.BlockLen(blockSize)) }
	prompt := make([]int32, 40)
	for i := range prompt {
		prompt[i] = int32(100 + i)
	}

	cold := make([]float32, m.Config().Vocab)
	blocks := [][]float32{newBlock(), newBlock(), newBlock()}
	coldFLOPs, err := m.Forward(blockSize, []model.Sequence{{Tokens: prompt, Blocks: blocks, Logits: cold}})
	if err != nil {
		fmt.Println(err)
		return
	}

	warm := make([]float32, m.Config().Vocab)
	reused := [][]float32{blocks[0], blocks[1], newBlock()}
	warmFLOPs, err := m.Forward(blockSize, []model.Sequence{{Tokens: prompt[32:], Start: 32, Blocks: reused, Logits: warm}})
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println("same logits:", slices.Equal(cold, warm))
	fmt.Println("same token:", model.Greedy(cold) == model.Greedy(warm))
	fmt.Println("operations:", coldFLOPs, "and", warmFLOPs)
	// Output:
	// same logits: true
	// same token: true
	// operations: 1750016 and 435200
}
