// Package kvproof marks the root of a module that benchmarks KV caches of LLM
// servers and proves that a cache hit is fast and right. It exports nothing:
// the benchmarks are test files of the directory bench_test, which is where
// go test has to be told to look.
//
//	go -C bench_test test -bench . -blocksize=128    # on the miniature stack, without a GPU
//	make bench                                       # the same, text and artifacts kept under results/
//	make test                                        # the project's own tests
//
// The command go test -bench in this directory finds no benchmark; it fails
// and prints the command that finds them, with the same flags.
//
// Packages, in the order in which they depend on one another:
//
//   - bench_test and cmd/kvproof: what people run
//   - harness: glue between testing.B and the packages below it
//   - harness/...: how a row is started, driven, watched and judged
//   - fixtures: what is run: workloads, traces, laws and the oracle
//
// README.md says how to read the results, docs/methods.md what every number
// means.
package kvproof
