#!/usr/bin/env bash
# Installs LMCache's server for the tests that carry the tag lmcache, in a
# virtual environment of its own, and prints where its `lmcache` command is.
#
#   scripts/lmcache.sh
#
#   KVPROOF_CACHE    directory that keeps installed servers (kvproof in the user's cache directory)
#   LMCACHE_VERSION  release (the pinned one); an older one is added beside it, with the same PyTorch
#   PYTHON           interpreter, 3.10 to 3.13 (see scripts/python.sh)
#
# Without a GPU only a part of the package's dependencies is needed (4.6 GB of
# all); an environment that is already complete is kept as it is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pinned=0.5.6
torch=2.15.0
version=${LMCACHE_VERSION:-$pinned}
cache=${KVPROOF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvproof}
environment=$cache/lmcache

say() { printf 'scripts/lmcache.sh: %s\n' "$*" >&2; }

# installed reports whether that release is complete: the stamp is written last.
installed() { [[ -e $environment/kvproof-$1.stamp ]]; }

install_pinned() {
  local python
  python=$("$here/python.sh")
  say "installing LMCache $pinned with $python; this takes minutes and 5 GB in $environment"
  rm -rf "$environment"
  mkdir -p "$cache"
  "$python" -m venv "$environment"
  local pip=("$environment/bin/pip" --disable-pip-version-check --quiet install --no-compile)
  # PyTorch's wheel links against these even where there is no GPU; which
  # releases it wants, it says itself.
  "${pip[@]}" --no-deps "lmcache==$pinned" "torch==$torch"
  local nvidia
  mapfile -t nvidia < <("$environment/bin/python" - <<'PYTHON'
import importlib.metadata, re
for line in importlib.metadata.requires("torch"):
    name, _, marker = line.partition(";")
    requirement = name.strip()
    if "extra ==" in marker or not re.match(r"(nvidia-|cuda-toolkit)", requirement):
        continue
    print(requirement)
PYTHON
  )
  "${pip[@]}" "${nvidia[@]}"
  "${pip[@]}" \
    aiofile aiofiles aiohttp blake3 cachetools cryptography fastapi httptools httpx importlib_metadata \
    msgspec numba 'numpy<=2.2.6' 'opentelemetry-api<=1.40.0' 'opentelemetry-sdk<=1.40.0' \
    'opentelemetry-exporter-prometheus<=0.61b0' 'prometheus_client<=0.24.1' psutil py-cpuinfo pyyaml pyzmq \
    requests sortedcontainers typing_extensions uvicorn 'setuptools<81' sympy networkx jinja2 fsspec filelock openai
  touch "$environment/kvproof-$pinned.stamp"
}

# install_older puts another release beside the pinned one; `lmcache-VERSION`
# runs it with the environment's PyTorch.
install_older() {
  say "adding LMCache $version"
  local target=$environment/releases/$version
  rm -rf "$target"
  "$environment/bin/pip" --disable-pip-version-check --quiet install --no-compile --no-deps --target "$target" "lmcache==$version"
  cat >"$environment/bin/lmcache-$version" <<LAUNCHER
#!/bin/sh
PYTHONPATH='$target' exec '$environment/bin/python' -c "import sys; sys.argv[0] = 'lmcache'; from lmcache.cli.main import main; main()" "\$@"
LAUNCHER
  chmod +x "$environment/bin/lmcache-$version"
  touch "$environment/kvproof-$version.stamp"
}

mkdir -p "$cache"
exec 9>"$cache/lmcache.lock" # two runs at once: the second waits for the first
flock 9
installed "$pinned" || install_pinned
if [[ $version = "$pinned" ]]; then
  printf '%s\n' "$environment/bin/lmcache"
else
  installed "$version" || install_older
  printf '%s\n' "$environment/bin/lmcache-$version"
fi
