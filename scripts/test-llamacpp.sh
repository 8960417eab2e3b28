#!/usr/bin/env bash
# Installs llama.cpp's server, which takes seconds, and runs the tests and a
# short benchmark of its rows on it: an engine that this project did not write,
# with real KV, real hits and real files that can be damaged.
#
#   scripts/test-llamacpp.sh
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/llamacpp.sh >/dev/null
go test ./bench_test -tags llamacpp -require -count=1 \
  -run '^(TestColdIsCold|TestWitnessesAgree|TestExactMatch|TestHitIsRight|TestDamagedSlotFile|TestSwappedSlotFiles)$' -bench 'Serve$' \
  -backend=baseline,engine-cache,engine-files -workload=unique \
  -requests=4 -concurrency=2 -inputlen=256 -outputlen=32
