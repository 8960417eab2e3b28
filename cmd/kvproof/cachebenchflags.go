package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/kvproof/kvproof/harness/lmcmp"
)

// shapeOf reads a shape and fills in what it leaves open: by what was asked
// for, else by upstream's defaults.
func shapeOf(spec string, blocks, blockSize int) (lmcmp.Shape, error) {
	shape, err := lmcmp.ParseShape(spec)
	if err != nil {
		return nil, fmt.Errorf("--kvcache-shape-spec: %w", err)
	}
	if blocks == 0 && shape.Blocks() == 0 {
		blocks = 1024
	}
	if blockSize == 0 && shape.BlockSize() == 0 {
		blockSize = 16
	}
	if shape, err = shape.WithBlocks(blocks, blockSize); err != nil {
		return nil, fmt.Errorf("--num-blocks=%d --block-size=%d: %w", blocks, blockSize, err)
	}
	return shape, nil
}

// requestsOf is the number of requests, 0 for ever, of three ways to say it.
func requestsOf(start, end, requests int, forever bool) (int, error) {
	given := 0
	for _, is := range []bool{end >= 0, requests != 0, forever} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return 0, errors.New("say how long to run: one of --end, --requests and --forever")
	case forever:
		return 0, nil
	case requests < 0:
		return 0, fmt.Errorf("--requests=%d: must be positive", requests)
	case requests > 0:
		return requests, nil
	case end <= start:
		return 0, fmt.Errorf("--start=%d --end=%d: there is no sequence in between", start, end)
	}
	return end - start, nil
}

func cacheBenchHelp(w io.Writer, flags *flag.FlagSet) {
	say(w, "kvproof cachebench measures a cache server of LMCache and compares every byte that\n"+
		"comes back. Its flags are those of `lmcache bench server`, and more.\n\n"+
		"  kvproof cachebench --rpc-url tcp://127.0.0.1:5555 --url http://127.0.0.1:8080 --end 100 --clients 4\n\n"+
		"It exits with 0 only when all was right, 1 when something was not or failed, 2 on\n"+
		"bad flags, 130 after an interrupt. A run that is not valid prints no latency.\n\nflags:\n")
	flags.SetOutput(w)
	flags.PrintDefaults()
}
