// The standin is a stand-in for vllm: its bench serve sends completions one by
// one and writes a result in the form of vLLM 0.32.0. STANDIN makes it behave
// in other ways: fail, hang, garbage, no-texts, lose, other-prompts.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := serve(os.Args[1:], os.Getenv("STANDIN")); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

func serve(args []string, mode string) error {
	if len(args) < 2 || args[0] != "bench" || args[1] != "serve" {
		return fmt.Errorf("only bench serve, not %q", args)
	}
	flags := map[string]string{}
	for i := 2; i < len(args); i++ {
		name, ok := strings.CutPrefix(args[i], "--")
		if !ok {
			return fmt.Errorf("unexpected argument %q", args[i])
		}
		flags[name] = ""
		if i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			i++
			flags[name] = args[i]
		}
	}
	switch mode {
	case "fail":
		return fmt.Errorf("cannot do it")
	case "hang":
		fmt.Println("hanging")
		select {}
	case "garbage":
		return os.WriteFile(filepath.Join(flags["result-dir"], flags["result-filename"]), []byte("{"), 0o644)
	}
	if _, err := os.Stat(filepath.Join(flags["model"], "tokenizer.json")); err != nil {
		return err
	}
	result, err := send(flags, mode)
	if err != nil {
		return err
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(flags["result-dir"], flags["result-filename"]), text, 0o644)
}

func send(flags map[string]string, mode string) (map[string]any, error) {
	number := func(name string) int {
		n, err := strconv.Atoi(flags[name])
		if err != nil {
			panic(name + ": " + err.Error())
		}
		return n
	}
	seed := uint64(number("seed"))
	if mode == "other-prompts" && strings.Contains(flags["result-filename"], "warm") {
		seed += 1000
	}
	random := rand.New(rand.NewPCG(seed, 0))
	var texts, errs []string
	var inputs, outputs []int
	var starts, ttfts []float64
	itls := [][]float64{}
	begin := time.Now()
	prompts := number("num-prompts")
	if mode == "lose" {
		prompts--
	}
	model := flags["model"]
	if served, ok := flags["served-model-name"]; ok {
		model = served
	}
	var file []string // of the custom format, by line
	if path := flags["dataset-path"]; path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file = strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	for i := range prompts {
		var words []string
		if file == nil {
			for range number("input-len") {
				words = append(words, fmt.Sprintf("w%d", 8+random.IntN(1000)))
			}
			flags["output"] = flags["output-len"]
		} else {
			var row struct {
				Prompt string `json:"prompt"`
				Output int    `json:"output_tokens"`
			}
			if err := json.Unmarshal([]byte(file[i]), &row); err != nil {
				return nil, err
			}
			words = []string{row.Prompt}
			if flags["output"] = flags["custom-output-len"]; flags["output"] == "-1" {
				flags["output"] = strconv.Itoa(row.Output)
			}
		}
		body, err := json.Marshal(map[string]any{
			"model": model, "prompt": strings.Join(words, " "), "max_tokens": number("output"), "temperature": 0, "ignore_eos": true,
		})
		if err != nil {
			return nil, err
		}
		sent := time.Now()
		response, err := http.Post(flags["base-url"]+flags["endpoint"], "application/json", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		var answer struct {
			Choices []struct {
				Text string `json:"text"`
			} `json:"choices"`
			Usage struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			} `json:"usage"`
		}
		err = json.NewDecoder(response.Body).Decode(&answer)
		response.Body.Close()
		if err != nil || len(answer.Choices) != 1 {
			return nil, fmt.Errorf("%s: %v", response.Status, err)
		}
		starts, ttfts = append(starts, sent.Sub(begin).Seconds()), append(ttfts, time.Since(sent).Seconds())
		texts, errs, itls = append(texts, answer.Choices[0].Text), append(errs, ""), append(itls, []float64{})
		inputs, outputs = append(inputs, answer.Usage.Prompt), append(outputs, answer.Usage.Completion)
	}
	result := map[string]any{
		"duration": time.Since(begin).Seconds(), "completed": len(texts), "failed": 0, "total_input_tokens": sum(inputs), "total_output_tokens": sum(outputs),
		"input_lens": inputs, "output_lens": outputs, "start_times": starts, "ttfts": ttfts, "itls": itls, "errors": errs, "generated_texts": texts,
		"mean_ttft_ms": 1.0, "mean_e2el_ms": 2.0,
	}
	if mode == "no-texts" {
		delete(result, "generated_texts")
	}
	return result, nil
}

func sum(ns []int) (total int) {
	for _, n := range ns {
		total += n
	}
	return total
}
