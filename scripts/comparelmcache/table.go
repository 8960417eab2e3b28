package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/kvproof/kvproof/harness/cachebench"
	"github.com/kvproof/kvproof/harness/metric"
)

// printTable prints, for each transfer, what both clients measured: min, p50
// and p99 over all blocks, each block's first request dropped, and p50 against
// p50. A ratio above 1 says that kvproof took longer.
func printTable(out io.Writer, blocks []block) error {
	var transfers []string
	for _, b := range blocks {
		if !slices.Contains(transfers, b.Transfer) {
			transfers = append(transfers, b.Transfer)
		}
	}
	clients := []string{"lmcache bench server", "kvproof cachebench"}
	ops := []string{cachebench.ColdLookup, cachebench.ColdStore, cachebench.WarmLookup, cachebench.WarmRetrieve}
	fmt.Fprintln(out, "| transfer | operation | client | n | min ms | p50 ms | p99 ms | p50 ratio |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	for _, transfer := range transfers {
		for _, op := range ops {
			var reference float64
			for i, client := range clients {
				took := pooled(blocks, transfer, client, op)
				if len(took) == 0 {
					return fmt.Errorf("%s measured no %s in %s mode", client, op, transfer)
				}
				p50 := metric.Percentile(took, 0.5)
				ratio := ""
				if i == 0 {
					reference = p50
				} else {
					ratio = fmt.Sprintf("%.2f", p50/reference)
				}
				fmt.Fprintf(out, "| %s | %s | %s | %d | %.2f | %.2f | %.2f | %s |\n", transfer, op, client, len(took), slices.Min(took), p50, metric.Percentile(took, 0.99), ratio)
			}
		}
	}
	for _, client := range clients {
		right, requests := 0, 0
		for _, b := range blocks {
			if b.Client == client {
				right, requests = right+b.OK, requests+b.Requests
			}
		}
		fmt.Fprintf(out, "\n%s: %d of %d checksums right.", client, right, requests)
	}
	printCopy(out, blocks)
	return nil
}

// pooled is all blocks of a client, less the first request of each.
func pooled(blocks []block, transfer, client, op string) []float64 {
	var all []float64
	for _, b := range blocks {
		if took := b.Latencies[op]; b.Transfer == transfer && b.Client == client && len(took) > 1 {
			all = append(all, took[1:]...)
		}
	}
	return all
}

// printCopy holds the copying part of engine_driven transfers against what the
// machine copies at best, measured in the same runs.
func printCopy(out io.Writer, blocks []block) {
	var rates, limits []float64
	for _, b := range blocks {
		if len(b.Copy) == 0 || b.Limit == 0 {
			continue
		}
		for _, ms := range b.Copy {
			rates = append(rates, float64(b.Bytes)/ms/1e6)
		}
		limits = append(limits, b.Limit)
	}
	if len(rates) == 0 {
		return
	}
	rate, limit := metric.Percentile(rates, 0.5), metric.Percentile(limits, 0.5)
	fmt.Fprintf(out, "\n\nkvproof's copies in engine_driven mode: p50 %.1f GB/s, %.0f%% of the %.1f GB/s that this machine copies in one piece a core (p50 of %d blocks).\n", rate, 100*rate/limit, limit, len(limits))
}
