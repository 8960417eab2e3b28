#!/usr/bin/env bash
# Benchmarks the rows on the miniature stack and keeps the text for benchstat.
#
#   BACKEND=lmcache COUNT=10 scripts/bench.sh
#
#   BACKEND    rows to run               (all four and engine-cache)
#   WORKLOAD   workloads to run          (all that apply)
#   BLOCKSIZE  tokens in a block         (128)
#   REQUESTS   requests in a pass        (5)
#   COUNT      samples                   (1)
#   TAGS       build tags: other stacks  (none)
#   BENCH      benchmarks to run         (Serve$)
#   ARGS       more flags, e.g. '-concurrency=1 -outputlen=32'
#   OUT        file for the text         (results/TIME.txt)
#
# The text grows while the benchmarks run and stays when they are interrupted.
# Requests, counters and findings of each pass lie in results/run_TIME, which
# the last lines of the text name.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

backend=${BACKEND:-baseline,engine-cache,lmcache,daser-chunk,daser-prefix}
out=${OUT:-results/$(date +%Y-%m-%dT%H-%M-%S).txt}
[[ $out = /* ]] || out=$root/$out
read -r -a more <<<"${ARGS:-}"
flags=(-tags="${TAGS:-}" -run='^$' -bench="${BENCH:-Serve\$}" -benchtime=1x -count="${COUNT:-1}" -v
  -backend="$backend" -blocksize="${BLOCKSIZE:-128}" -requests="${REQUESTS:-5}"
  ${WORKLOAD:+-workload="$WORKLOAD"} "${more[@]}")

mkdir -p "$(dirname "$out")"
# Compiling is not part of what is measured, nor of the time that is estimated.
go -C bench_test test -tags="${TAGS:-}" -c -o /dev/null .

# The benchmark gets a process group of its own: an interrupt that reaches this
# script, from a terminal or from kill, is passed on to it once, and tee stays
# until the last line is written.
set -m
(
  trap : INT TERM
  go -C bench_test test "${flags[@]}" 2>&1 | tee -i "$out"
) &
job=$!
set +m
interrupted=
trap 'interrupted=130; kill -INT -- "-$job"' INT
trap 'interrupted=143; kill -INT -- "-$job"' TERM
status=0
wait "$job" || status=$?
while kill -0 "$job" 2>/dev/null; do # a trap ends wait before the job does
  status=0
  wait "$job" || status=$?
done

printf '\n%s\n' "${out#"$root/"}"
exit "${interrupted:-$status}"
