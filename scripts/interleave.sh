#!/usr/bin/env bash
# Benchmarks two sides in turn, so that slow drift of the machine lands on both,
# and prints benchstat's table as Markdown.
#
#   scripts/interleave.sh COMMIT                       # this checkout against a commit
#   BASE_ROWFILE=a.toml HEAD_ROWFILE=b.toml scripts/interleave.sh
#   BASE_IMAGE=mine:1 HEAD_IMAGE=mine:2 scripts/interleave.sh   # of the engine's container
#
#   ROWFILE the row whose engine runs in those images (a built-in one: ARGS=-backend=…)
#   TAGS    build tags, e.g. gpu   (none)
#   COUNT   samples of each side   (6)
#   ARGS    more flags of the suite, e.g. '-blocksize=64 -requests=8'
#
# The texts stay in results/base.txt and results/head.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
mkdir -p results
: >results/base.txt
: >results/head.txt
read -r -a more <<<"${ARGS:-}"

if [[ -n ${HEAD_ROWFILE:-} ]]; then
  one() { # of a row file; both sides must be called by one name to be compared
    go -C bench_test test -tags="${TAGS:-}" -run '^$' -bench . -rowfile="$2" "${more[@]}" >>"$root/results/$1.txt"
  }
  base=$BASE_ROWFILE head=$HEAD_ROWFILE
elif [[ -n ${HEAD_IMAGE:-} ]]; then
  one() { # of an image
    go -C bench_test test -tags="${TAGS:-}" -run '^$' -bench 'Serve$' -stack=docker -image="$2" ${ROWFILE:+-rowfile="$ROWFILE"} "${more[@]}" >>"$root/results/$1.txt"
  }
  base=${BASE_IMAGE:?say which image is the older side} head=$HEAD_IMAGE
  docker image inspect "$base" "$head" >/dev/null # nothing is pulled while a run waits
else
  commit=${1:?usage: scripts/interleave.sh COMMIT}
  checkout=$(mktemp -d)
  trap 'git worktree remove --force "$checkout/base"; rm -rf "$checkout"' EXIT
  git worktree add -q --detach "$checkout/base" "$commit"
  one() { # of a checkout
    ARGS="${ARGS:-}" OUT="$checkout/one.txt" "$2/scripts/bench.sh" >/dev/null
    cat "$checkout/one.txt" >>"$root/results/$1.txt"
  }
  base=$checkout/base head=$root
fi

for ((i = 0; i < ${COUNT:-6}; i++)); do
  one base "$base"
  one head "$head"
done
printf '```\n'
go tool -modfile=tools/go.mod benchstat results/base.txt results/head.txt
printf '```\n'
