//go:build lmcache && !(llamacpp || vllm || daser || gpu)

package bench_test

const defaultStack = "engine=mini,lmcache=process"
