#!/usr/bin/env bash
# Runs the tests under the race detector. It needs cgo, hence a C compiler;
# nothing else in the module does.
#
#   scripts/race.sh [package ...]     # default: all but the benchmarks, which would
#                                    # be judged by the clock of a slowed-down stack
set -euo pipefail
cd "$(dirname "$0")/.."

compiler=$(go env CC)
if ! command -v "${compiler%% *}" >/dev/null; then
  printf 'race: the race detector needs a C compiler and %s is missing; on Debian or Ubuntu: apt-get install gcc libc6-dev\n' "$compiler" >&2
  exit 1
fi
[[ $# -gt 0 ]] || set -- ./fixtures/... ./harness/... ./cmd/... ./cuda
CGO_ENABLED=1 go test -race -short "$@"
