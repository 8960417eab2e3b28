// Package tier is the object layer under the miniature caches: values under
// 16-byte keys, in memory (L1) and, where a directory is given, in files (L2).
// What a key stands for, a chunk of a prompt or a document, is the business of
// the cache above.
//
//	objects, err := tier.New(tier.Config{L1Bytes: 64 << 20, L2Dir: dir})
//	defer objects.Close()
//	err = objects.Put(key, values)
//	values, from, err := objects.Get(key) // from: L1, L2, or None
//
// # Order of use and eviction
//
// Every object has one place in the order of use, whichever tiers it is in.
// Put, Get and Touch make it the most recently used.
//
//   - L1: when a Put would bring the bytes used above Watermark x L1Bytes, the
//     least recently used objects leave L1 until the object fits within
//     (Watermark - Ratio) x L1Bytes, or is alone. The object that is being put
//     never leaves with its own Put. Both bounds are rounded to whole bytes.
//   - L2: a Put writes the object there too, so leaving L1 costs nothing but
//     the place. With L2Bytes, the least recently used objects leave L2 until
//     the new one fits.
//   - An object that is read from L2 stays there: it does not come back to L1.
//
// The watermark, its default of 0.8, and L2 as a place that is written behind
// each store, not at eviction, are LMCache's (multiprocess server 0.5.6, which
// shows trigger_watermark and eviction_ratio in its status), as is not to
// promote (its default prefetch policy). There a thread looks at the watermark
// now and then; here the Put does it, so that an oracle can say what is where.
package tier

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
)

// ErrClosed says that the objects have been closed.
var ErrClosed = errors.New("objects are closed")

// A Key names an object.
type Key [16]byte

func (k Key) String() string { return hex.EncodeToString(k[:]) }

// A Tier is where an object is found: the fastest place that has it.
type Tier int

// The tiers.
const (
	None Tier = iota
	L1        // memory
	L2        // files
)

func (t Tier) String() string {
	switch t {
	case L1:
		return "l1"
	case L2:
		return "l2"
	default:
		return "none"
	}
}

// Defaults of a Config.
const (
	DefaultWatermark = 0.8
	DefaultRatio     = 0.2
)

// A Config bounds the tiers.
type Config struct {
	L1Bytes   int64   // of memory at most
	Watermark float64 // share of L1Bytes that may be used, in (0, 1]; 0: DefaultWatermark
	Ratio     float64 // share of L1Bytes that is freed below the watermark; 0: DefaultRatio; negative: none
	L2Dir     string  // files go into a new directory below it; empty: no L2
	L2Bytes   int64   // of files at most; 0: unbounded
}

func (c Config) withDefaults() Config {
	if c.Watermark == 0 {
		c.Watermark = DefaultWatermark
	}
	switch {
	case c.Ratio == 0:
		c.Ratio = DefaultRatio
	case c.Ratio < 0:
		c.Ratio = 0
	}
	return c
}

// validate looks at a config whose defaults are filled in.
func (c Config) validate() error {
	switch {
	case c.L1Bytes <= 0:
		return fmt.Errorf("L1 of %d bytes: must be positive", c.L1Bytes)
	case !(c.Watermark > 0 && c.Watermark <= 1):
		return fmt.Errorf("watermark %v: must be in (0, 1]", c.Watermark)
	case !(c.Ratio < c.Watermark):
		return fmt.Errorf("ratio %v: must be below the watermark %v, or nothing would be left in L1", c.Ratio, c.Watermark)
	case c.L2Bytes < 0:
		return fmt.Errorf("L2 of %d bytes: must be positive, or 0 for no bound", c.L2Bytes)
	case c.L2Bytes > 0 && c.L2Dir == "":
		return fmt.Errorf("L2 of %d bytes without a directory for it", c.L2Bytes)
	}
	return nil
}

// share is a share of L1Bytes in whole bytes.
func (c Config) share(of float64) int64 { return int64(math.Round(of * float64(c.L1Bytes))) }

// Stats is the state of both tiers and what happened since New. Reset and
// Delete change what is there and are not evictions.
type Stats struct {
	L1, L2 TierStats
	Misses int64 // Gets that found nothing
}

// TierStats are the numbers of one tier.
type TierStats struct {
	Objects   int
	Bytes     int64
	Capacity  int64 // bytes; 0: unbounded, or no such tier
	Evictions int64 // objects that left for want of room
	Hits      int64 // Gets that were answered from this tier
	HitBytes  int64
}
