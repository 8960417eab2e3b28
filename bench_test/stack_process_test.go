//go:build (llamacpp || vllm || daser) && !gpu

package bench_test

const defaultStack = "engine=process"
