package tiny

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
)

// object is a JSON object whose keys keep no order of their own.
type object = map[string]any

func writeJSON(path string, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // tokens have angle brackets
	encoder.SetIndent("", " ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

func config() object {
	return object{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama",
		"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
		"num_attention_heads": heads, "num_key_value_heads": kvHeads, "head_dim": headDim,
		"vocab_size": Vocab, "max_position_embeddings": Context,
		"rms_norm_eps": normEps, "rope_theta": ropeBase, "hidden_act": "silu",
		"tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false,
		"bos_token_id": beginToken, "eos_token_id": endToken, "pad_token_id": padToken,
		"torch_dtype": "bfloat16", "dtype": "bfloat16",
	}
}

func generationConfig() object {
	return object{"bos_token_id": beginToken, "eos_token_id": endToken, "pad_token_id": padToken, "do_sample": false}
}

// writeSafetensors writes the tensors as bfloat16: the length of the header in
// 8 bytes, the header as JSON, the values. Source: the format's own
// description.
func writeSafetensors(path string, tensors []tensor) (err error) {
	header := object{"__metadata__": object{"format": "pt"}}
	at := 0
	for _, t := range tensors {
		shape := []int{t.rows, t.columns}
		if t.rows == 0 {
			shape = shape[1:]
		}
		end := at + 2*t.len()
		header[t.name] = object{"dtype": "BF16", "shape": shape, "data_offsets": []int{at, end}}
		at = end
	}
	text, err := json.Marshal(header)
	if err != nil {
		return fmt.Errorf("encoding the header of %s: %w", path, err)
	}
	text = append(text, bytes.Repeat([]byte(" "), -len(text)&7)...)

	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriter(file) // keeps its first error until Flush
	_, _ = out.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
	_, _ = out.Write(text)
	for _, t := range tensors {
		var data []byte
		for _, value := range t.values() {
			data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(value)>>16))
		}
		_, _ = out.Write(data)
	}
	return out.Flush()
}
