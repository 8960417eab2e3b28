#!/usr/bin/env bash
# Builds the images of the rows in containers. It pulls tens of gigabytes, which
# no run ever does by itself.
#
#   DASER=~/src/daser scripts/images.sh
#
#   DASER   checkout of DaseR whose connector and server go into the images (none)
set -euo pipefail
cd "$(dirname "$0")/.."
vllm=0.32.0
lmcache=0.5.6

daser=${DASER:-}
if [[ -z $daser ]]; then # an empty one: the image goes without
  daser=$(mktemp -d)
  trap 'rmdir "$daser"' EXIT
fi
[[ -z ${DASER:-} || -f $DASER/pyproject.toml ]] || {
  printf 'scripts/images.sh: DASER=%s is no checkout of DaseR: it has no pyproject.toml\n' "$DASER" >&2
  exit 2
}
build() {
  local name=$1
  shift
  docker buildx build --load -f "docker/$name.Dockerfile" --build-arg "VLLM=$vllm" "$@" docker
}
build vllm --build-arg "LMCACHE=$lmcache" --build-context "daser=$daser" -t "kvproof/vllm:$vllm"
build lmcache -t "kvproof/lmcache:$lmcache"
if [[ -n ${DASER:-} ]]; then
  build daser -t kvproof/daser:local
fi
