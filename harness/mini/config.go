package mini

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kvproof/kvproof/harness/mini/fault"
	"github.com/kvproof/kvproof/harness/mini/model"
)

// The rows that there are.
const (
	Baseline    = "baseline"     // no reuse at all
	EngineCache = "engine-cache" // the engine's own prefix cache
	LMCache     = "lmcache"      // no prefix cache in the engine, a store behind it
	DaserChunk  = "daser-chunk"  // the same with DaseR, which reuses whole documents
	DaserPrefix = "daser-prefix" // the same with DaseR, which reuses prefixes
)

// Rows lists the rows, in the order in which messages name them.
func Rows() []string { return []string{Baseline, EngineCache, LMCache, DaserChunk, DaserPrefix} }

// Defaults of a Config. Memory is taken block by block and chunk by chunk as
// it is used, so these are bounds: at 1 KiB of KV per token, as model.Mini
// has, half a million and a million tokens.
const (
	DefaultBlockSize        = 128
	DefaultMaxSeqs          = 8
	DefaultEngineCacheBytes = 512 << 20
	DefaultL1Bytes          = 1 << 30
	DefaultModelName        = "mini"
	defaultAddr             = "127.0.0.1:0"
)

// A Config says which stack to start. Only Row must be given.
type Config struct {
	Row       string
	BlockSize int    // B, tokens per block and per chunk; 0: DefaultBlockSize
	Addr      string // of the engine; empty: a free port of 127.0.0.1
	StoreAddr string // of LMCache's store, in the row lmcache; likewise
	DaserAddr string // of the DaseR server, in the rows that have one; likewise
	// Another cache server for the row lmcache, instead of one in this process:
	// where it speaks LMCache's wire, tcp://host:port, and the base of its HTTP
	// side, which says what release it is. Chunk and tiers are then its own.
	LMCacheAddr, LMCacheHTTP string
	LMCacheTransfer          string        // engine_driven or lmcache_driven; empty: engine_driven
	Model                    model.Config  // zero: model.Mini()
	ModelName                string        // as clients name it; empty: DefaultModelName
	MaxSeqs                  int           // sequences that run at once, more wait; 0: DefaultMaxSeqs
	Faults                   []fault.Fault // planted from the start
	Unsafe                   bool          // opens /debug: on the store's address to damage what is stored, on DaseR's to check what is loaded
	Log                      io.Writer     // what went wrong, in lines; nil: nowhere

	EngineCache      bool  // in the row lmcache: the engine has a prefix cache of its own, too
	EngineCacheBytes int64 // KV that an engine with one keeps; 0: DefaultEngineCacheBytes

	// The tiers of a store, in the rows lmcache, daser-chunk and daser-prefix.
	L1Bytes int64  // in memory; 0: DefaultL1Bytes
	L2Dir   string // a directory of its own is made below it; empty: no L2
	L2Bytes int64  // in L2; 0: no bound
	KeepL2  bool   // in the row lmcache: L2Dir is taken as it is, with what lies there, and stays

	// What DaseR puts before the documents of a prompt and between them.
	Prefix    []int32 // nil: a chat prefix; empty: nothing
	Separator []int32 // empty: nothing
}

// Validate says what is wrong with a config, before anything is started.
func (c Config) Validate() error {
	switch {
	case !slices.Contains(Rows(), c.Row):
		return fmt.Errorf("row %q is not known to the miniature stack; there are %s", c.Row, strings.Join(Rows(), ", "))
	case c.BlockSize < 0:
		return fmt.Errorf("block size %d: must be positive", c.BlockSize)
	case c.BlockSize > c.modelConfig().Context:
		return fmt.Errorf("block size %d: must be at most the model's context of %d tokens", c.BlockSize, c.modelConfig().Context)
	case c.MaxSeqs < 0:
		return fmt.Errorf("%d running sequences: must be positive", c.MaxSeqs)
	case c.EngineCacheBytes < 0 || c.L1Bytes < 0 || c.L2Bytes < 0:
		return fmt.Errorf("caches of %d, %d and %d bytes: must be positive", c.EngineCacheBytes, c.L1Bytes, c.L2Bytes)
	case (c.LMCacheAddr == "") != (c.LMCacheHTTP == ""):
		return fmt.Errorf("cache server at %q with HTTP at %q: both are needed, or none", c.LMCacheAddr, c.LMCacheHTTP)
	case c.LMCacheAddr != "" && (c.Row != LMCache || c.Unsafe):
		return fmt.Errorf("cache server at %q: only row %s has one, and what it stores cannot be damaged from here", c.LMCacheAddr, LMCache)
	case c.EngineCache && c.Row != LMCache:
		return fmt.Errorf("row %q with a prefix cache in front of its store: only %s has one", c.Row, LMCache)
	case c.L2Bytes > 0 && c.L2Dir == "":
		return fmt.Errorf("L2 of %d bytes without a directory for it", c.L2Bytes)
	case !c.hasStore() && (c.L1Bytes > 0 || c.L2Dir != ""):
		return fmt.Errorf("row %q has no store with tiers: they need one of %s", c.Row, strings.Join(withStore, ", "))
	case !c.hasStore() && c.Unsafe:
		return fmt.Errorf("row %q has no store whose bytes could be damaged: unsafe needs one of %s", c.Row, strings.Join(withStore, ", "))
	}
	for _, f := range c.Faults {
		if f.NeedsStore() && !c.hasStore() {
			return fmt.Errorf("row %q has no store in which fault %q could be planted: it needs one of %s", c.Row, f, strings.Join(withStore, ", "))
		}
		if f.NeedsDaser() && !c.hasDaser() {
			return fmt.Errorf("row %q has no DaseR in which fault %q could be planted: it needs %s or %s", c.Row, f, DaserChunk, DaserPrefix)
		}
	}
	return nil
}

// withDefaults fills in what was not given.
func (c Config) withDefaults() Config {
	c.Model = c.modelConfig()
	if c.Log == nil {
		c.Log = io.Discard
	}
	c.BlockSize = cmp.Or(c.BlockSize, DefaultBlockSize)
	c.Addr = cmp.Or(c.Addr, defaultAddr)
	c.StoreAddr = cmp.Or(c.StoreAddr, defaultAddr)
	c.DaserAddr = cmp.Or(c.DaserAddr, defaultAddr)
	c.ModelName = cmp.Or(c.ModelName, DefaultModelName)
	c.MaxSeqs = cmp.Or(c.MaxSeqs, DefaultMaxSeqs)
	c.EngineCacheBytes = cmp.Or(c.EngineCacheBytes, DefaultEngineCacheBytes)
	c.L1Bytes = cmp.Or(c.L1Bytes, DefaultL1Bytes)
	return c
}

func (c Config) modelConfig() model.Config { return cmp.Or(c.Model, model.Mini()) }

// withStore are the rows with a store behind the engine.
var withStore = []string{LMCache, DaserChunk, DaserPrefix}

func (c Config) hasStore() bool { return slices.Contains(withStore, c.Row) }

func (c Config) hasDaser() bool { return c.Row == DaserChunk || c.Row == DaserPrefix }

// prefixCaching says whether the engine has a prefix cache of its own.
func (c Config) prefixCaching() bool { return c.Row == EngineCache || c.EngineCache }

// engineBlockSize is the block size that the engine really runs with: half of
// what was asked for (twice, where that is odd) if it is to ignore it.
func (c Config) engineBlockSize() int {
	switch {
	case !slices.Contains(c.Faults, fault.BlockSizeIgnored):
		return c.BlockSize
	case c.BlockSize%2 == 0:
		return c.BlockSize / 2
	}
	return 2 * c.BlockSize
}

// noise is how far logits move: enough to turn a choice here and there.
func (c Config) noise() float64 {
	if slices.Contains(c.Faults, fault.NumericNoise) {
		return 0.005
	}
	return 0
}

// chunk is the store's chunk: B, or the next multiple of the engine's block.
func (c Config) chunk() int { return max(c.BlockSize, c.engineBlockSize()) }

// numBlocks is the size of the engine's pool: room for every running sequence
// at full context, and for the KV that its own cache keeps.
func (c Config) numBlocks(m *model.Model) int {
	size := c.engineBlockSize()
	perSequence := (m.Config().Context + size - 1) / size
	running := c.MaxSeqs * perSequence
	if !c.prefixCaching() {
		return running
	}
	return running + int(c.EngineCacheBytes/int64(size*m.TokenBytes()))
}
