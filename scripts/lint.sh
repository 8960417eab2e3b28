#!/usr/bin/env bash
# Runs every checker, also after one has complained, and fails if any did.
#
#   scripts/lint.sh
#
# shellcheck disable=SC2317 # functions are called through check
set -euo pipefail
cd "$(dirname "$0")/.."

tool() { go tool -modfile=tools/go.mod "$@"; }
status=0
check() {
  printf 'lint: %s\n' "$*"
  "$@" || status=1
}

unformatted() {
  local files
  files=$(tool gofumpt -l .) || return 1
  [[ -z $files ]] || { printf 'not formatted (make fmt does it):\n%s\n' "$files" && return 1; }
}

for tags in '' 'lmcache llamacpp vllm daser gpu'; do
  check go vet -tags "$tags" ./...
  check tool staticcheck -tags "$tags" ./...
done
check env GOOS=darwin go build ./... # where people write code, if not where it is run
check unformatted
check tool actionlint
for script in scripts/*.sh .ci/run; do
  check bash -n "$script"
done
if command -v shellcheck >/dev/null; then
  check shellcheck scripts/*.sh .ci/run
else
  printf 'lint: shellcheck is not installed, so the scripts were only parsed\n'
fi
exit "$status"
