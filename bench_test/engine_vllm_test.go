//go:build !llamacpp || vllm

package bench_test

const defaultEngine = "vllm"
