#!/bin/sh
# Generates the PTX that ships, with clang-19 (Debian, Ubuntu: apt-get install
# clang-19) and no CUDA toolkit. `go generate ./cuda` calls it.
#
# sm_70 and PTX 6.0 are the oldest that the kernels can be written for: every
# driver since CUDA 9 compiles that text for every newer chip. The text depends
# on the compiler's version, so its first lines name the version and the hash of
# the sources, which tests compare.
set -eu
cd "$(dirname "$0")"
out=${1:-../kvsum.ptx}
scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
clang-19 -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib \
	-O2 -Wall -Werror -S -include shim_device.h -o "$scratch" kvsum.cu
{
	echo "// source sha256 $(cat kvsum.cu shim_device.h | sha256sum | cut -c1-64)"
	echo "// compiler $(clang-19 --version | head -n 1)"
	cat "$scratch"
} >"$out"
