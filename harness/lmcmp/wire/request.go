package wire

import (
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// A Request is one of the structs below that name an operation and hold its
// payloads.
type Request interface {
	Op() Op
	// payloads are pointers to the payloads in order, as the dialect has them.
	payloads(d *Dialect) []any
	// result is a pointer to what a reply holds; nil: nothing.
	result() any
}

type (
	// RegisterKVCache hands over paged memory of the client, a tensor for each
	// layer, which the server then copies from and to.
	RegisterKVCache struct {
		Instance   int
		Tensors    []Tensor
		Model      string
		WorldSize  int
		EngineType string // vllm
		Hints      LayoutHints
		Groups     []Group
	}
	// UnregisterKVCache takes it back.
	UnregisterKVCache struct{ Instance int }

	// Store copies the blocks of a range out of the client's memory. Its reply
	// means submitted: a lookup finds the chunks some milliseconds later.
	Store struct {
		Key      Key
		Instance int
		Blocks   [][]int // ids by KV group, for [Start, End) only
		Event    []byte  // IPC handle of a CUDA event after which the KV is there; empty on a CPU
	}
	// Retrieve copies the blocks of a range into the client's memory and
	// releases the locks that the lookup took.
	Retrieve struct {
		Key      Key
		Instance int
		Blocks   [][]int
		Event    []byte
		Skip     int // tokens at the start that are not wanted
	}

	// Lookup starts to look for the prompt's leading chunks. What it finds is
	// locked until it is read, or freed.
	Lookup struct {
		Key    Key
		TPSize int // ranks that hold a part of the KV each
	}
	// QueryPrefetchStatus asks once for what a lookup found, in chunks; nothing
	// is answered while it is still looking.
	QueryPrefetchStatus struct{ RequestID string }
	// WaitPrefetchStatus is the same with patience.
	WaitPrefetchStatus struct {
		RequestID string
		Timeout   float64 // seconds
	}
	// QueryLookupHits asks for the same, in releases up to 0.5.5.
	QueryLookupHits struct{ RequestID string }
	// FreeLookupLocks releases what a lookup found and nobody read.
	FreeLookupLocks struct {
		Key    Key
		TPSize int
	}
	// EndSession forgets a request.
	EndSession struct{ RequestID string }

	// RegisterEngineDriven announces a client that copies through the server's
	// own shared memory, and asks where that is.
	RegisterEngineDriven struct{ Context EngineContext }
	// UnregisterEngineDriven is its end.
	UnregisterEngineDriven struct{ Instance int }
	// PrepareStore reserves places for the chunks of a range that are missing.
	PrepareStore struct {
		Key      Key
		Instance int
	}
	// CommitStore makes them readable.
	CommitStore struct {
		Key      Key
		Instance int
		Data     []byte // empty where memory is shared
	}
	// PrepareRetrieve asks where the chunks of a range are.
	PrepareRetrieve struct {
		Key      Key
		Instance int
	}
	// CommitRetrieve says that they have been read.
	CommitRetrieve struct {
		Key      Key
		Instance int
	}

	// Clear empties L1.
	Clear struct{ Force bool } // also of what is locked
	// GetChunkSize asks for the tokens in a chunk.
	GetChunkSize struct{}
	// Noop asks for nothing; the reply is OK.
	Noop struct{}
	// Ping says that a client lives. Once it has pinged, it must go on.
	Ping struct{ Instance *int }
	// ReportBlockAllocation tells of blocks that an engine has given out.
	ReportBlockAllocation struct {
		Instance int
		Model    string
		Blocks   []BlockAllocation
	}
	// GetExperimental asks for the names of features that are tried out.
	GetExperimental struct{}
)

// LayoutHints tell how the dimensions of the tensors are to be read.
type LayoutHints struct {
	KVLayout  string `msgpack:"kv_layout"` // NHD
	NumLayers int    `msgpack:"num_layers,omitempty"`
	NumHeads  int    `msgpack:"num_heads,omitempty"`
	HeadSize  int    `msgpack:"head_size,omitempty"`
	NumBlocks int    `msgpack:"num_blocks,omitempty"`
	BlockSize int    `msgpack:"block_size,omitempty"`
	DType     string `msgpack:"dtype,omitempty"`
	KVSize    int    `msgpack:"kv_size,omitempty"`
}

// A Group is a set of layers with block ids of their own.
type Group struct {
	ID              int   `msgpack:"engine_group_id"`
	Layers          ints  `msgpack:"layer_indices"`
	TokensPerBlock  int   `msgpack:"tokens_per_block"`
	WindowTokens    *int  `msgpack:"sw_size_tokens,omitempty"`         // -1: attention is not windowed
	ExtraObjectTag  *int  `msgpack:"extra_object_group_tag,omitempty"` // from 0.5.5 on
	RecurrentStates *bool `msgpack:"recurrent_state,omitempty"`
}

// An EngineContext describes the KV of a client that copies by itself.
type EngineContext struct {
	Instance  int    `msgpack:"instance_id"`
	Model     string `msgpack:"model_name"`
	WorldSize int    `msgpack:"world_size"`
	BlockSize int    `msgpack:"block_size"`
	Layers    int    `msgpack:"num_layers"`
	Hidden    int    `msgpack:"hidden_dim_size"` // heads times head size
	DType     string `msgpack:"dtype_str"`
	MLA       bool   `msgpack:"use_mla"` // one plane instead of K and V
	Slots     int    `msgpack:"num_physical_slots,omitempty"`
}

// A BlockAllocation is what an engine gave a request.
type BlockAllocation struct {
	RequestID string `msgpack:"req_id"`
	Blocks    []int  `msgpack:"new_block_ids"`
	Tokens    Tokens `msgpack:"new_token_ids"`
}

// A Pool is the server's shared memory. Without one the name is empty.
type Pool struct {
	Name string `msgpack:"shm_name"` // without a leading slash
	Size int    `msgpack:"pool_size"`
}

// A Slot is the place of one chunk in the pool.
type Slot struct {
	Offset int    `msgpack:"offset"` // bytes from the start of the pool
	Length int    `msgpack:"length"` // bytes
	Shape  []int  `msgpack:"shape"`
	DType  string `msgpack:"dtype"`
}

// A PreparedStore lists the places to write to: of the chunks that are not
// there already and that nobody else is writing.
type PreparedStore struct {
	Context struct {
		Slots  []Slot `msgpack:"slots"`
		Chunks []int  `msgpack:"chunk_indices"` // number in the range, for each slot
	} `msgpack:"context"`
}

// A PreparedRetrieve lists the places to read, one for each chunk of the
// range, or none when one of them cannot be read.
type PreparedRetrieve struct {
	Success bool   `msgpack:"success"`
	Data    []byte `msgpack:"data"`
	Context struct {
		Slots []Slot `msgpack:"slots"`
	} `msgpack:"context"`
}

// A Transfer is the reply to Store and Retrieve.
type Transfer struct {
	Event []byte // IPC handle of the CUDA event that ends the copy; a stub on a CPU
	OK    bool
}

// EncodeMsgpack writes a pair.
func (t Transfer) EncodeMsgpack(e *msgpack.Encoder) error {
	if err := e.EncodeArrayLen(2); err != nil {
		return err
	}
	if err := encodeBin(e, t.Event); err != nil {
		return err
	}
	return e.EncodeBool(t.OK)
}

// DecodeMsgpack reads a pair.
func (t *Transfer) DecodeMsgpack(d *msgpack.Decoder) error {
	n, err := decodeLen(d)
	if err != nil || n != 2 {
		return fmt.Errorf("want an event and a bool: %w", errOr(err, fmt.Sprintf("there are %d values", n)))
	}
	if err := decodeValue(d, &t.Event); err != nil {
		return err
	}
	t.OK, err = d.DecodeBool()
	return err
}

// encodeBin writes bytes, never nil.
func encodeBin(e *msgpack.Encoder, b []byte) error {
	if err := e.EncodeBytesLen(len(b)); err != nil {
		return err
	}
	_, err := e.Writer().Write(b)
	return err
}

// NewRequest is an empty request of that operation.
func NewRequest(op Op) (Request, error) {
	make, known := requests[op]
	if !known {
		return nil, fmt.Errorf("operation %q has no request here", op)
	}
	return make(), nil
}

var requests = map[Op]func() Request{
	OpRegisterKVCache:       func() Request { return &RegisterKVCache{} },
	OpUnregisterKVCache:     func() Request { return &UnregisterKVCache{} },
	OpStore:                 func() Request { return &Store{} },
	OpRetrieve:              func() Request { return &Retrieve{} },
	OpLookup:                func() Request { return &Lookup{} },
	OpQueryPrefetchStatus:   func() Request { return &QueryPrefetchStatus{} },
	OpWaitPrefetchStatus:    func() Request { return &WaitPrefetchStatus{} },
	OpQueryLookupHits:       func() Request { return &QueryLookupHits{} },
	OpFreeLookupLocks:       func() Request { return &FreeLookupLocks{} },
	OpEndSession:            func() Request { return &EndSession{} },
	OpRegisterEngineDriven:  func() Request { return &RegisterEngineDriven{} },
	OpUnregisterEngine:      func() Request { return &UnregisterEngineDriven{} },
	OpPrepareStore:          func() Request { return &PrepareStore{} },
	OpCommitStore:           func() Request { return &CommitStore{} },
	OpPrepareRetrieve:       func() Request { return &PrepareRetrieve{} },
	OpCommitRetrieve:        func() Request { return &CommitRetrieve{} },
	OpClear:                 func() Request { return &Clear{} },
	OpGetChunkSize:          func() Request { return &GetChunkSize{} },
	OpNoop:                  func() Request { return &Noop{} },
	OpPing:                  func() Request { return &Ping{} },
	OpReportBlockAllocation: func() Request { return &ReportBlockAllocation{} },
	OpGetExperimental:       func() Request { return &GetExperimental{} },
}
