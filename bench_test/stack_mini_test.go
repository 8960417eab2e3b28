//go:build !(gpu || lmcache || llamacpp || vllm || daser)

package bench_test

const defaultStack = "mini"
