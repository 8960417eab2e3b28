//go:build gpu

package bench_test

// The tag asks for containers on a GPU host. Until they can be started, saying
// so is better than measuring the miniature stack under their name.
const defaultStack = "docker"
