#!/bin/sh
# Damages a running miniature stack from outside: inverts one byte of every
# stored chunk. The stack must have been started with -unsafe; its store's URL
# is what `kvproof mini` prints.
#
#   scripts/flip-byte.sh http://127.0.0.1:PORT [OFFSET]
#
# OFFSET is the byte within the chunk; 3, the default, holds the exponent of
# its first value. Prints how many chunks were damaged.
set -eu

url=${1:?usage: scripts/flip-byte.sh STORE_URL [OFFSET]}
offset=${2:-3}

chunks=$(curl -fsS "$url/debug/chunks" | grep -o '"chunk":' | wc -l)
if [ "$chunks" -eq 0 ]; then
	echo "flip-byte: nothing is stored at $url" >&2
	exit 1
fi
n=0
while [ "$n" -lt "$chunks" ]; do
	curl -fsS -X POST "$url/debug/flip?chunk=$n&offset=$offset" >/dev/null
	n=$((n + 1))
done
echo "inverted byte $offset of $n chunks"
