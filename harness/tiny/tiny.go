// Package tiny writes a small language model to disk, in the layouts of Hugging
// Face (for vLLM) and of llama.cpp, so that a real engine can be tried without
// a download:
//
//	err := tiny.Write(dir) // config.json, tokenizer.json, model.safetensors, model.gguf, …
//
// It is a Llama with random weights: its text means nothing, but every token
// depends on all of its context, so that wrong KV shows in the output. Both
// layouts hold the same weights, and the bytes are the same on every machine.
//
// The scales are those at which attention is sharp enough for far context to
// matter and the best two logits are close (within a bfloat16 step for some
// tokens in a hundred), which makes it a hard test of determinism.
package tiny

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kvproof/kvproof/fixtures"
)

// The shape of the model.
const (
	Vocab   = 4096
	Context = 8192 // tokens

	width    = 256
	layers   = 4
	heads    = 4
	kvHeads  = 2
	headDim  = 64
	inner    = 512
	ropeBase = 10000
	normEps  = 1e-5
)

// The files of the model.
const (
	safetensorsFile = "model.safetensors"
	ggufFile        = "model.gguf"
)

// GGUF is the file for llama.cpp in a directory that Write has filled.
func GGUF(dir string) string { return filepath.Join(dir, ggufFile) }

// Facts are what decides the size of the model's KV in vLLM, in bfloat16.
func Facts() fixtures.ModelFacts {
	return fixtures.ModelFacts{KVHeads: kvHeads, HeadDim: headDim, Layers: layers, DTypeBytes: 2}
}

// version goes up with every change of the bytes, so that a directory that an
// older build has filled is written anew.
const version = "1\n"

// Write makes dir hold the model. It is complete or absent: another process
// that writes it at the same time does no harm, and a directory that is
// complete is left alone.
func Write(dir string) error {
	if done, err := os.ReadFile(filepath.Join(dir, "VERSION")); err == nil && string(done) == version {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("writing the tiny model: %w", err)
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), ".tiny-")
	if err != nil {
		return fmt.Errorf("writing the tiny model: %w", err)
	}
	defer os.RemoveAll(temporary)
	if err := errors.Join(
		writeJSON(filepath.Join(temporary, "config.json"), config()),
		writeJSON(filepath.Join(temporary, "generation_config.json"), generationConfig()),
		writeJSON(filepath.Join(temporary, "tokenizer_config.json"), tokenizerConfig()),
		writeJSON(filepath.Join(temporary, "tokenizer.json"), tokenizer()),
		writeSafetensors(filepath.Join(temporary, safetensorsFile), tensors()),
		writeGGUF(filepath.Join(temporary, ggufFile), tensors()),
		os.WriteFile(filepath.Join(temporary, "VERSION"), []byte(version), 0o644),
		os.Chmod(temporary, 0o755),
	); err != nil {
		return fmt.Errorf("writing the tiny model: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("writing the tiny model: %w", err)
	}
	if err := os.Rename(temporary, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("writing the tiny model: %w", err)
	}
	return nil
}
