#!/usr/bin/env bash
# Runs a short benchmark and checks that benchstat reads all of it: one line a
# row and workload and sample, every line understood, nothing on stderr
# (benchstat's exit code is 0 even after syntax errors).
#
#   scripts/check-benchstat.sh
set -euo pipefail
cd "$(dirname "$0")/.."

backend=baseline,engine-cache,lmcache,daser-chunk,daser-prefix
workload=unique,shared-prefix,documents,recomposed,multi-prefix,multi-turn,trace
inapplicable=5 # workloads without documents, for the row that reuses documents
samples=2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  printf 'check-benchstat: %s\n' "$*" >&2
  exit 1
}
items() { tr ',' '\n' <<<"$1" | wc -l; }

text=results/short-$(date +%Y-%m-%dT%H-%M-%S).txt
BENCH='Serve$|CacheServer$' BACKEND=$backend WORKLOAD=$workload BLOCKSIZE=32 COUNT=$samples OUT=$text TAGS='' \
  ARGS='-requests=2 -concurrency=1 -inputlen=192 -outputlen=32' scripts/bench.sh

cells=$(($(items "$backend") * $(items "$workload") - inapplicable))
lines=$(grep -cE '^BenchmarkServe/[^[:space:]]+[[:space:]]+[0-9]+[[:space:]]' "$text" || true)
[[ $lines -eq $((cells * samples)) ]] ||
  fail "$lines result lines, want $cells rows × workloads with $samples samples each"

benchstat() { go tool -modfile=tools/go.mod benchstat "$@"; }
benchstat "$text" >"$scratch/table" 2>"$scratch/stderr"
[[ ! -s $scratch/stderr ]] || fail "benchstat complains: $(cat "$scratch/stderr")"

for unit in cold-p50-ttft-ns warm-p50-ttft-ns hit-% match-%; do
  benchstat -filter=".unit:$unit" "$text" | tee "$scratch/table"
  rows=$(grep -c '^Serve/' "$scratch/table" || true)
  [[ $rows -eq $cells ]] || fail "benchstat shows $rows rows of $unit, want $cells"
done

cache=$(grep -cE '^BenchmarkCacheServer/[^[:space:]]+[[:space:]]+[0-9]+[[:space:]]' "$text" || true)
[[ $cache -eq $((2 * 5 * samples)) ]] || fail "$cache lines of the cache server, want 2 transfers × 5 operations × $samples samples"
for unit in p50-store-ns p50-retrieve-ns; do
  benchstat -filter=".unit:$unit" "$text" | grep -q '^CacheServer/' || fail "benchstat shows no row of $unit"
done

# The units that only some lines have, and tiers.
tiers=results/short-evict-$(date +%Y-%m-%dT%H-%M-%S).txt
BACKEND=lmcache,daser-chunk WORKLOAD=documents BLOCKSIZE=32 COUNT=1 OUT=$tiers TAGS='' \
  ARGS='-requests=4 -concurrency=1 -inputlen=256 -outputlen=32 -evict' scripts/bench.sh
benchstat "$tiers" >/dev/null 2>"$scratch/stderr"
[[ ! -s $scratch/stderr ]] || fail "benchstat complains: $(cat "$scratch/stderr")"
for unit in l1-hit-% l2-hit-% upload-ns; do
  benchstat -filter=".unit:$unit" "$tiers" | grep -q '^Serve/' || fail "benchstat shows no row of $unit"
done

# Benchmarks that have no cells.
others=results/short-others-$(date +%Y-%m-%dT%H-%M-%S).txt
BENCH='BreakEven|Client/streams=4$' BACKEND=lmcache WORKLOAD=unique BLOCKSIZE=32 COUNT=1 OUT=$others TAGS='' \
  ARGS='-model=nano -inputlen=128' scripts/bench.sh
benchstat "$others" >/dev/null 2>"$scratch/stderr"
[[ ! -s $scratch/stderr ]] || fail "benchstat complains: $(cat "$scratch/stderr")"
for unit in load-ns/tok recompute-ns/tok roofline-break-even-tok client-p50-ns client-cpu-ns/ktok; do
  benchstat -filter=".unit:$unit" "$others" | grep -Eq '^(BreakEven|Client)/' || fail "benchstat shows no row of $unit"
done
printf 'check-benchstat: %d lines, %d rows, nothing on stderr\n' "$lines" "$cells"
