#!/usr/bin/env bash
# Measures this project's client and upstream's (`vllm bench serve`, where it is
# installed: make setup-vllm) side by side against a server whose times are
# known, in turns, and prints a table. Everything else on the machine spoils it.
#
#   scripts/compare-client.sh [FLAG ...]      # those of: go run ./cmd/kvproof help compareclient
#
# Raw data of each run goes to results/client-TIME. The programs are built
# first, so that the compiler is not what is measured.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$(mktemp -d)/kvproof
trap 'rm -rf "$(dirname "$binary")"' EXIT
go build -o "$binary" ./cmd/kvproof
load=$(cut -d' ' -f1 /proc/loadavg)
printf 'compare-client: %s cores, load average %s before the first run\n' "$(nproc)" "$load"
"$binary" compareclient "$@"
