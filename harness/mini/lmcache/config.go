package lmcache

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// Transfers that a server can offer.
const (
	Auto          = "auto" // both
	LMCacheDriven = "lmcache_driven"
	EngineDriven  = "engine_driven"
)

// NoNullBlock is a NullBlock for which every block can be stored.
const NoNullBlock = -1

// nullBlockSince is the first release with a block that means none.
const nullBlockSince = "0.5.4"

// Defaults of a Config, as upstream's where it has one.
const (
	DefaultChunk     = 256
	DefaultL1Bytes   = 1 << 30
	DefaultAlign     = 4096
	DefaultWatermark = 0.8
	DefaultRatio     = 0.2
	DefaultLockTTL   = 300 * time.Second
	writeTTL         = 600 * time.Second
	defaultAddr      = "127.0.0.1:0"
)

// A Config says what to serve. The zero value serves everything on a free port.
type Config struct {
	Addr     string // of the wire; empty: a free port of 127.0.0.1
	HTTPAddr string // of the HTTP side; empty: none of its own, see [Server.Handler]
	Version  string // release whose dialect is spoken; empty: the newest known

	Chunk     int    // tokens in a chunk; 0: DefaultChunk
	Transfer  string // Auto, LMCacheDriven or EngineDriven; empty: Auto
	NullBlock int    // id of the block that means none; NoNullBlock, and in releases before 0.5.4: there is none
	Separate  bool   // an object for each KV group, instead of one for all

	TransferWorkers int // lanes for transfers, dealt to connections in turn; 0: 1
	Workers         int // threads for lookups and the rest; 0: 1

	L1Bytes   int64   // 0: DefaultL1Bytes
	Staging   int64   // bytes of memory beyond L1Bytes, for what is being written and for reads from L2
	Align     int     // bytes to which places in L1 are aligned; 0: DefaultAlign
	ShmName   string  // the pool is then /dev/shm/lmcache_l1_pool_<ShmName>; empty: a name of its own
	NoShm     bool    // L1 in private memory: engine_driven then works in this process only, see [Server.Open]
	Watermark float64 // share of L1Bytes at which L1 evicts; 0: DefaultWatermark
	Ratio     float64 // share of L1Bytes that is then freed below it; 0: DefaultRatio
	L2Dir     string  // directory of L2; empty: no L2
	L2Bytes   int64   // 0: no bound, as upstream's
	ClearL2   bool    // a clear empties L2 too; upstream's never does

	GPU     GPU           // opens device memory of clients; nil: the server has none
	LockTTL time.Duration // of the read locks of a lookup; 0: DefaultLockTTL
	Faults  []Fault       // planted from the start
	Log     io.Writer     // what was dropped and why, in lines; nil: nowhere
}

// Validate says what is wrong with a config.
func (c Config) Validate() error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	switch {
	case c.Chunk < 0:
		return fmt.Errorf("chunks of %d tokens: must be positive", c.Chunk)
	case !slices.Contains([]string{Auto, LMCacheDriven, EngineDriven}, c.Transfer):
		return fmt.Errorf("transfer %q: there are %s, %s and %s", c.Transfer, Auto, LMCacheDriven, EngineDriven)
	case c.NullBlock < NoNullBlock:
		return fmt.Errorf("null block %d: must be a block id, or -1 for none", c.NullBlock)
	case c.TransferWorkers < 0 || c.Workers < 0:
		return fmt.Errorf("%d and %d workers: must be positive", c.TransferWorkers, c.Workers)
	case c.L1Bytes < 0 || c.Staging < 0 || c.L2Bytes < 0:
		return fmt.Errorf("L1 of %d bytes, %d beside it, and L2 of %d: must be positive", c.L1Bytes, c.Staging, c.L2Bytes)
	case c.Align < 1:
		return fmt.Errorf("places aligned to %d bytes: must be positive", c.Align)
	case !(c.Watermark > 0 && c.Watermark <= 1):
		return fmt.Errorf("watermark %v: must be in (0, 1]", c.Watermark)
	case !(c.Ratio >= 0 && c.Ratio < c.Watermark):
		return fmt.Errorf("ratio %v: must be below the watermark %v, or nothing would be left in L1", c.Ratio, c.Watermark)
	case c.L2Bytes > 0 && c.L2Dir == "":
		return fmt.Errorf("L2 of %d bytes without a directory for it", c.L2Bytes)
	case strings.ContainsAny(c.ShmName, "/\x00"):
		return fmt.Errorf("pool name %q: must not contain a slash", c.ShmName)
	case c.LockTTL < 0:
		return fmt.Errorf("locks for %v: must be positive", c.LockTTL)
	}
	return checkFaults(c.Faults)
}

func (c Config) withDefaults() (Config, error) {
	if c.Version == "" {
		c.Version = wire.Newest().Version
	}
	if _, err := wire.ForVersion(c.Version); err != nil {
		return c, err
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	c.Addr = cmp.Or(c.Addr, defaultAddr)
	c.Chunk = cmp.Or(c.Chunk, DefaultChunk)
	c.Transfer = cmp.Or(c.Transfer, Auto)
	c.TransferWorkers = cmp.Or(c.TransferWorkers, 1)
	c.Workers = cmp.Or(c.Workers, 1)
	c.L1Bytes = cmp.Or(c.L1Bytes, DefaultL1Bytes)
	c.Align = cmp.Or(c.Align, DefaultAlign)
	c.Watermark = cmp.Or(c.Watermark, DefaultWatermark)
	c.Ratio = cmp.Or(c.Ratio, DefaultRatio)
	if at := slices.Index(wire.Versions(), c.Version); at >= 0 && at < slices.Index(wire.Versions(), nullBlockSince) {
		c.NullBlock = NoNullBlock
	}
	c.LockTTL = cmp.Or(c.LockTTL, DefaultLockTTL)
	return c, nil
}

// offers says whether a transfer is offered.
func (c Config) offers(transfer string) bool { return c.Transfer == Auto || c.Transfer == transfer }
