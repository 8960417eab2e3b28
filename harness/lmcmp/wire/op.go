package wire

// An Op names an operation, as releases from 0.5.6 on spell it on the wire.
type Op string

// The operations of a transfer client. Those of CacheBlend, of peers and of
// query tensors are left out.
const (
	OpRegisterKVCache       Op = "register_kv_cache"
	OpUnregisterKVCache     Op = "unregister_kv_cache"
	OpStore                 Op = "store"
	OpRetrieve              Op = "retrieve"
	OpLookup                Op = "lookup"
	OpQueryPrefetchStatus   Op = "query_prefetch_status"
	OpWaitPrefetchStatus    Op = "wait_prefetch_status"
	OpQueryLookupHits       Op = "query_prefetch_lookup_hits" // retired in 0.5.6
	OpFreeLookupLocks       Op = "free_lookup_locks"
	OpEndSession            Op = "end_session"
	OpRegisterEngineDriven  Op = "register_kv_cache_engine_driven_context"
	OpUnregisterEngine      Op = "unregister_kv_cache_engine_driven_context"
	OpPrepareStore          Op = "prepare_store"
	OpCommitStore           Op = "commit_store"
	OpPrepareRetrieve       Op = "prepare_retrieve"
	OpCommitRetrieve        Op = "commit_retrieve"
	OpClear                 Op = "clear"
	OpGetChunkSize          Op = "get_chunk_size"
	OpPing                  Op = "ping"
	OpReportBlockAllocation Op = "report_block_allocation"
	OpNoop                  Op = "noop"
	OpGetExperimental       Op = "get_experimental"
)
