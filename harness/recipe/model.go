package recipe

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/host"
	"github.com/kvproof/kvproof/harness/tiny"
)

// A Model is what is known about the model of an engine without asking it.
type Model struct {
	Name    string // as the engine's API names it
	Dir     string // with config.json and weights; empty: of the miniature engine
	Context int    // tokens that it was made for
	Vocab   int
	Facts   fixtures.ModelFacts

	Sizeless bool // nobody says how large its KV is; the facts are a guess then
}

// model is the model that an engine brings.
func (m ModelFile) model() Model {
	half := max(1, m.TokenBytes/2) // K and V
	return Model{
		Name: m.Name, Context: m.Context, Vocab: m.Vocab, Sizeless: m.TokenBytes == 0,
		Facts: fixtures.ModelFacts{KVHeads: 1, HeadDim: half, Layers: 1, DTypeBytes: 1},
	}
}

// Of is the model of a run that has these row files: theirs, where they bring
// one, else the one that was asked for.
func (m Model) Of(files []File) (Model, error) {
	for i, f := range files {
		switch {
		case f.Model == nil && i > 0 && files[i-1].Model != nil, f.Model != nil && i > 0 && (files[i-1].Model == nil || *files[i-1].Model != *f.Model):
			return Model{}, fmt.Errorf("rows %s and %s have different models, and answers of two models say nothing about a cache", files[i-1].Row, f.Row)
		case f.Model != nil:
			m = f.Model.model()
		}
	}
	return m, nil
}

// RealModel is the model of an engine that is not the miniature one: tiny,
// which this project writes, or the path of a directory in Hugging Face's
// layout.
func RealModel(name string) (Model, error) {
	if name == "tiny" {
		dir, err := host.CacheDir()
		if err != nil {
			return Model{}, err
		}
		return Model{Name: "tiny", Dir: filepath.Join(dir, "models", "tiny"), Context: tiny.Context, Vocab: tiny.Vocab, Facts: tiny.Facts()}, nil
	}
	path := filepath.Join(name, "config.json")
	config, err := os.Open(path)
	if err != nil {
		return Model{}, fmt.Errorf("want tiny, or a directory with a model in Hugging Face's layout: %w", err)
	}
	defer config.Close()
	m := Model{Name: filepath.Base(filepath.Clean(name))}
	if m.Dir, err = filepath.Abs(name); err != nil {
		return Model{}, err
	}
	if m.Facts, err = fixtures.ReadModelFacts(config); err != nil {
		return Model{}, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Model{}, err
	}
	var sizes struct {
		Context int `json:"max_position_embeddings"`
		Vocab   int `json:"vocab_size"`
	}
	if err := json.Unmarshal(data, &sizes); err != nil {
		return Model{}, fmt.Errorf("reading %s: %w", path, err)
	}
	if sizes.Context <= 0 || sizes.Vocab <= 0 {
		return Model{}, fmt.Errorf("reading %s: no positive max_position_embeddings and vocab_size", path)
	}
	m.Context, m.Vocab = sizes.Context, sizes.Vocab
	return m, nil
}

// prepare makes sure that the model is on the disk.
func (m Model) prepare() error {
	if m.Name == "tiny" {
		return tiny.Write(m.Dir)
	}
	return nil
}
