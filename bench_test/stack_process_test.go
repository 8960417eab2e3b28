//go:build (lmcache || llamacpp || vllm || daser) && !gpu

package bench_test

// The tag asks for a real service. Until one can be started, saying so is
// better than measuring the miniature one under its name.
const defaultStack = "process"
