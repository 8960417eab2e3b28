# Each target is one line that a person could type, or a script that says at its
# top what it does. `make` alone lists the targets.
.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16

.PHONY: bench
bench: ## benchmark the rows on the miniature stack: BACKEND, WORKLOAD, BLOCKSIZE, COUNT, ARGS
	scripts/bench.sh

.PHONY: compare
compare: ## what changed between two runs: OLD=results/a.txt NEW=results/b.txt
	@: $${OLD:?say which text is the older: make compare OLD=results/a.txt NEW=results/b.txt} $${NEW:?say which text is the newer: make compare OLD=results/a.txt NEW=results/b.txt}
	@cat "$${OLD#*=}" "$${NEW#*=}" >/dev/null # benchstat exits with 0 when a file is missing
	go tool -modfile=tools/go.mod benchstat $(OLD) $(NEW)
	go run ./cmd/kvproof compare "$${OLD#*=}" "$${NEW#*=}"

.PHONY: break-even
break-even: ## from what length on a hit pays, by row and tier, with a picture in the artifacts
	BENCH=BreakEven scripts/bench.sh

.PHONY: compare-client
compare-client: ## this client and vllm bench serve against known truth: ARGS='-streams 64,256 -runs 3'
	scripts/compare-client.sh $(ARGS)

.PHONY: test
test: ## all tests that need nothing but Go (junit in tests.xml)
	go tool -modfile=tools/go.mod gotestsum --junitfile tests.xml -- ./...

.PHONY: race
race: ## the tests under the race detector (needs a C compiler)
	scripts/race.sh

.PHONY: lint
lint: ## go vet, staticcheck, gofumpt, actionlint, shellcheck where there is one
	scripts/lint.sh

.PHONY: benchstat
benchstat: ## a short benchmark, and proof that benchstat reads every line of it
	scripts/check-benchstat.sh

.PHONY: setup-lmcache
setup-lmcache: ## install LMCache's server, for -tags lmcache (minutes, 5 GB)
	scripts/lmcache.sh
	LMCACHE_VERSION=0.5.5 scripts/lmcache.sh

.PHONY: lmcache
lmcache: ## the tests against real LMCache servers; make setup-lmcache installs them
	go -C bench_test test -count=1 -tags lmcache -run 'RealCacheServer|HitIsRight|FlippedPool' -bench '^BenchmarkServe$$' -require \
		-backend=baseline,lmcache -workload=unique,shared-prefix -blocksize=32 -requests=4 -inputlen=256 -outputlen=32

.PHONY: compare-lmcache-bench
compare-lmcache-bench: ## LMCache's own benchmark client and ours, side by side on one server (minutes)
	go run ./scripts/comparelmcache $(ARGS)

.PHONY: healthy
healthy: ## a hundred runs in which nothing is wrong, and nothing may be found
	KVPROOF_HEALTHY=100 go test ./bench_test -run '^TestHealthy$$' -timeout 30m -blocksize=32

.PHONY: setup-llamacpp
setup-llamacpp: ## install llama.cpp's server, for -tags llamacpp (seconds, 130 MB)
	scripts/llamacpp.sh

.PHONY: setup-vllm
setup-vllm: ## install vLLM's CPU build with LMCache's connector, for -tags vllm (minutes, 6 GB)
	scripts/vllm.sh

.PHONY: images
images: ## build the images of the rows in containers, for -tags gpu: DASER=checkout
	scripts/images.sh

.PHONY: test-llamacpp
test-llamacpp: ## install llama.cpp's server, and test and benchmark its rows
	scripts/test-llamacpp.sh

.PHONY: ci
ci: test lint race benchstat healthy test-llamacpp $(if $(CI),setup-lmcache lmcache) ## all that a pull request must pass; with CI set, real servers too

.PHONY: fmt
fmt: ## format the Go files
	go tool -modfile=tools/go.mod gofumpt -w .

.PHONY: clean
clean: ## remove what tests left; results/ stays
	rm -f tests.xml *.test *.prof bench_test/*.test bench_test/*.prof
