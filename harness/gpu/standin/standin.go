// Package standin writes a stand-in for nvidia-smi, so that what depends on it is
// tested on machines without a GPU.
//
//	dir := t.TempDir()
//	err := standin.Write(dir, standin.GPUs(80000, 80000), "")
//	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
package standin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// script answers the queries that package gpu makes out of the files beside it, as
// nvidia-smi of driver 580 does: a field that it does not know fails the query.
const script = `#!/bin/sh
dir=$(dirname "$0")
case $1 in
--query-compute-apps=*) cat "$dir/apps" ;;
--query-gpu=*)
	n=$(($(cat "$dir/asked" 2>/dev/null || echo 0) + 1))
	echo $n >"$dir/asked"
	awk -F'|' -v want="${1#*=}" -v grows="$n" '
NR == 1 {
	for (i = 1; i <= NF; i++) at[$i] = i
	n = split(want, fields, ",")
	for (i = 1; i <= n; i++) if (!(fields[i] in at)) {
		printf "Field \"%s\" is not a valid field to query.\n", fields[i]
		bad = 1
		exit 2
	}
	next
}
{ for (i = 1; i <= NF; i++) if ($i == "grows") $i = grows }
{ line = $at[fields[1]]; for (i = 2; i <= n; i++) line = line ", " $at[fields[i]]; print line }' "$dir/gpus" ;;
*) echo "nvidia-smi: $*?" >&2; exit 6 ;;
esac
`

// Write puts nvidia-smi into dir, or changes what one there says. gpus is a table
// with | between its columns and the names of the fields as its head; a value "grows"
// is a counter. apps are the lines of compute processes: UUID, pid, name, MiB.
func Write(dir, gpus, apps string) error {
	write := func(name, text string, mode os.FileMode) error {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", []byte(text), mode); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}
	return errors.Join(write("gpus", gpus, 0o644), write("apps", apps, 0o644), write("nvidia-smi", script, 0o755))
}

// GPUs is a table of GPUs of 81559 MiB each, with so much in use.
func GPUs(used ...int) string {
	const total = 81559
	head := "index|uuid|pci.bus_id|name|driver_version|memory.total|memory.used|memory.free|clocks.sm|clocks.max.sm|clocks.mem|clocks.max.mem|temperature.gpu|" +
		"pcie.link.gen.current|pcie.link.gen.max|pcie.link.width.current|pcie.link.width.max|clocks_event_reasons.active\n"
	var b strings.Builder
	b.WriteString(head)
	for i, u := range used {
		fmt.Fprintf(&b, "%d|GPU-%08d-stand-in|00000000:%02X:00.0|Stand-in H100|580.95.05|%d|%d|%d|345|1980|2619|2619|31|1|5|16|16|0x0000000000000001\n",
			i, i, 0x18+i, total, u, total-u)
	}
	return b.String()
}
