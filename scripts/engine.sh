#!/usr/bin/env bash
# A Docker engine for a machine without systemd, such as a CI container. It is
# installed if need be (Debian's docker.io). Run it as root.
#
#   scripts/engine.sh up|down|status
#
#   ENGINE_RUN   directory of its socket and pid file   (/var/run)
#   ENGINE_LOG   file of its output                     (/tmp/dockerd.log)
#   ENGINE_GPU   stand-in: it accepts requests for GPUs, which then reach a container
#                as NVIDIA_VISIBLE_DEVICES alone; for tests on machines without one
set -euo pipefail
run=${ENGINE_RUN:-/var/run}
log=${ENGINE_LOG:-/tmp/dockerd.log}
pidfile=$run/docker.pid
socket=$run/docker.sock

answers() { curl -fsS --max-time 2 --unix-socket "$socket" http://engine/_ping >/dev/null 2>&1; }
# ours is whether the process of the pid file is a Docker engine: after a crash
# its number may be somebody else's.
ours() { [[ -f $pidfile ]] && grep -qs dockerd "/proc/$(<"$pidfile")/comm"; }
# wait_for CONDITION ... waits half a minute for a command to succeed.
wait_for() {
  local i
  for ((i = 0; i < 150; i++)); do
    "$@" && return
    sleep 0.2
  done
  return 1
}
gone() { [[ ! -d /proc/$1 ]]; }
# stand_in puts the hook of the NVIDIA runtime on the PATH, by which a Docker engine
# knows at its start that it can hand GPUs over. This one hands over nothing.
stand_in() {
  local dir=$run/kvproof-stand-in
  mkdir -p "$dir"
  printf '#!/bin/sh\ncat >/dev/null\n' >"$dir/nvidia-container-runtime-hook"
  chmod +x "$dir/nvidia-container-runtime-hook"
  PATH=$dir:$PATH
}

up() {
  if answers; then
    echo 'engine: already up'
    return
  fi
  if ! command -v dockerd >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io >/dev/null
  fi
  ours || rm -f "$pidfile"
  [[ ${ENGINE_GPU:-} != stand-in ]] || stand_in
  # A session of its own: Ctrl-C in this terminal is not meant for the engine.
  setsid nohup dockerd --pidfile "$pidfile" -H "unix://$socket" >>"$log" 2>&1 </dev/null &
  wait_for answers || {
    tail -20 "$log" >&2
    echo "engine: not up after 30 s; its log is $log" >&2
    exit 1
  }
  echo 'engine: up'
}

down() {
  if ! ours; then
    rm -f "$pidfile"
    echo 'engine: not running'
    return
  fi
  local pid
  pid=$(<"$pidfile")
  kill "$pid"
  wait_for gone "$pid" || {
    echo 'engine: still running after 30 s' >&2
    exit 1
  }
  echo 'engine: down'
}

case ${1:-} in
up | down) "$1" ;;
status) if answers; then echo up; else echo down && exit 1; fi ;;
*)
  echo "usage: $0 up|down|status" >&2
  exit 2
  ;;
esac
