#!/usr/bin/env bash
# Prints a Python that can make virtual environments, for the scripts that
# install real servers.
#
#   scripts/python.sh
#
#   PYTHON   interpreter, 3.10 to 3.13 (default: the first of 3.12, 3.13, 3.11, 3.10)
set -euo pipefail
shopt -s nullglob

candidates=()
for version in 3.12 3.13 3.11 3.10; do
  candidates+=("python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python3)
done
for candidate in ${PYTHON:+"$PYTHON"} "${candidates[@]}" python3; do
  # A shim of a version manager may be there and fail, so each one is tried; an
  # environment must be made with the interpreter itself.
  if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null; then
    "$candidate" -c 'import sys; print(sys.executable)'
    exit 0
  fi
done
printf 'scripts/python.sh: no Python from 3.10 to 3.13 with venv; install one (Debian: apt-get install python3-venv) or name it with PYTHON=\n' >&2
exit 1
