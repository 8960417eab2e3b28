package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandLine(t *testing.T) {
	for _, test := range []struct {
		name      string
		args      []string
		code      int
		out, errs string // contained; empty: nothing is written
	}{
		{"nothing", nil, exitUsage, "", "usage: kvproof COMMAND"},
		{"help", []string{"help"}, exitOK, "serve the miniature stack", ""},
		{"-h", []string{"-h"}, exitOK, "usage: kvproof COMMAND", ""},
		{"help of a command", []string{"help", "mini"}, exitOK, "-storeaddr", ""},
		{"the same", []string{"mini", "-h"}, exitOK, "hit-minus-one-block  a hit is reported one chunk too short", ""},
		{"help of an unknown command", []string{"help", "max"}, exitUsage, "", `command "max" is not known; there are help, mini, cachebench, compare, replay, paced, client, compareclient, doctor, version`},
		{"unknown command", []string{"minis"}, exitUsage, "", `command "minis" is not known`},
		{"version", []string{"version"}, exitOK, "kvproof ", ""},
		{"version with an argument", []string{"version", "x"}, exitUsage, "", "takes no arguments"},
		{"unknown flag of replay", []string{"replay", "-sick"}, exitUsage, "", "-sick; the flags are -backend -engine -healthy"},
		{"unknown flag", []string{"mini", "-bloksize=3"}, exitUsage, "", "-bloksize; the flags are -addr -blocksize"},
		{"argument", []string{"mini", "lmcache"}, exitUsage, "", `argument "lmcache": only flags are taken, -addr`},
		{"unknown row", []string{"mini", "-row=vllm"}, exitUsage, "", "-row=vllm: row \"vllm\" is not known to the miniature stack; there are baseline, engine-cache, lmcache"},
		{"fault without DaseR", []string{"mini", "-fault=early-drain"}, exitUsage, "", `no DaseR in which fault "early-drain" could be planted: it needs daser-chunk or daser-prefix`},
		{"size of L1", []string{"mini", "-l1=5zb"}, exitUsage, "", `-l1=5zb: size "5zb"`},
		{"no L1", []string{"mini", "-l1=0"}, exitUsage, "", "-l1=0: must be positive"},
		{"size of L2", []string{"mini", "-l2dir=x", "-l2=-1"}, exitUsage, "", `-l2=-1: size "-1"`},
		{"L2 nowhere", []string{"mini", "-l2=1mib"}, exitUsage, "", "L2 of 1048576 bytes without a directory"},
		{"tiers without a store", []string{"mini", "-row=baseline", "-l1=1mib"}, exitUsage, "", `row "baseline" has no store with tiers`},
		{"L1 below a slot", []string{"mini", "-model=nano", "-row=daser-prefix", "-addr=127.0.0.1:0", "-daseraddr=127.0.0.1:0", "-l1=10kb"}, exitFailed, "", "L1 of 10000 bytes: a slot of 128 tokens takes 32768"},
		{"help names DaseR's faults", []string{"mini", "-h"}, exitOK, "early-drain", ""},
		{"unknown model", []string{"mini", "-model=huge"}, exitUsage, "", "-model=huge: there are mini and nano"},
		{"unknown fault", []string{"mini", "-fault=stall,bitflip"}, exitUsage, "", `-fault=stall,bitflip: fault "bitflip" is not known; there are bit-flip,`},
		{"fault without a store", []string{"mini", "-row=baseline", "-fault=nan"}, exitUsage, "", `no store in which fault "nan" could be planted`},
		{"unsafe without a store", []string{"mini", "-row=engine-cache", "-unsafe"}, exitUsage, "", "no store whose bytes"},
		{"no block", []string{"mini", "-blocksize=0"}, exitUsage, "", "-blocksize=0: must be at least 1"},
		{"huge block", []string{"mini", "-blocksize=5000"}, exitUsage, "", "block size 5000"},
		{"no number", []string{"mini", "-blocksize=x"}, exitUsage, "", `invalid value "x" for flag -blocksize`},
		{"no concurrency", []string{"mini", "-concurrency=-2"}, exitUsage, "", "-concurrency=-2: must be at least 1"},
		{"no such address", []string{"mini", "-model=nano", "-addr=256.0.0.1:0"}, exitFailed, "", "listening on 256.0.0.1:0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			require.Equal(t, test.code, run(t.Context(), test.args, &out, &errs), errs.String())
			requireWritten(t, test.out, out.String())
			requireWritten(t, test.errs, errs.String())
		})
	}
}

func requireWritten(t *testing.T, want, got string) {
	t.Helper()
	if want == "" {
		require.Empty(t, got)
		return
	}
	require.Contains(t, got, want)
}
