#!/usr/bin/env bash
# Installs llama.cpp's server for the tests that carry the tag llamacpp, in a
# virtual environment of its own, and prints the environment's Python.
#
#   scripts/llamacpp.sh
#
#   KVPROOF_CACHE   directory that keeps installed servers (kvproof in the user's cache directory)
#   PYTHON          interpreter, 3.10 to 3.13 (the one that scripts/python.sh finds)
#
# It takes seconds and 130 MB. A complete environment is kept as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
xllamacpp=2026.10.11549 # a wheel with llama.cpp's whole server inside
environment=${KVPROOF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvproof}/llamacpp
stamp=$environment/kvproof-$xllamacpp.stamp # written last

mkdir -p "$(dirname "$environment")"
exec 9>"$environment.lock" # two runs at once: the second waits for the first
flock 9
if [[ ! -e $stamp ]]; then
  python=$(scripts/python.sh)
  printf 'scripts/llamacpp.sh: installing xllamacpp %s with %s in %s\n' "$xllamacpp" "$python" "$environment" >&2
  rm -rf "$environment"
  "$python" -m venv "$environment"
  "$environment/bin/pip" --disable-pip-version-check --quiet install "xllamacpp==$xllamacpp"
  touch "$stamp"
fi
printf '%s\n' "$environment/bin/python"
