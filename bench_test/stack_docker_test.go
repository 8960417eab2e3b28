//go:build gpu

package bench_test

// The tag asks for containers on a GPU host.
const defaultStack = "docker"
