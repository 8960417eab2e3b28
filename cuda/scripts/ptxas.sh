#!/bin/sh
# Fetches NVIDIA's assembler of PTX from its Python wheel (47 MB), without a CUDA
# toolkit, and prints its path:
#
#	PTXAS=$(sh cuda/scripts/ptxas.sh) go test -run PTX ./cuda
#
# The first argument is the directory to keep it in.
set -eu
version=13.5.37
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvproof/ptxas-$version}
ptxas=$dir/nvidia/cu13/bin/ptxas
if [ ! -x "$ptxas" ]; then
	mkdir -p "$dir"
	python3 -m pip download --quiet --no-deps --dest "$dir" "nvidia-cuda-nvcc==$version" >&2
	python3 -m zipfile -e "$dir"/nvidia_cuda_nvcc-*.whl "$dir"
	rm "$dir"/nvidia_cuda_nvcc-*.whl
	chmod +x "$ptxas" # unpacking a wheel by hand loses the bit
fi
echo "$ptxas"
