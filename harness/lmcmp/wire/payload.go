package wire

import (
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// key is the key as the dialect writes it.
func (d *Dialect) key(k *Key) any { return keyField{k, d.KeyFields} }

// Operations, their payloads and their replies. Source: each was exchanged
// with servers of 0.4.7 to 0.5.6.

func (*RegisterKVCache) Op() Op { return OpRegisterKVCache }

func (r *RegisterKVCache) payloads(d *Dialect) []any {
	return []any{&r.Instance, tensorList{&r.Tensors, d.PickledShape}, &r.Model, &r.WorldSize, &r.EngineType, &r.Hints, &r.Groups}
}
func (*RegisterKVCache) result() any { return nil }

func (*UnregisterKVCache) Op() Op                    { return OpUnregisterKVCache }
func (r *UnregisterKVCache) payloads(*Dialect) []any { return []any{&r.Instance} }
func (*UnregisterKVCache) result() any               { return nil }

func (*Store) Op() Op { return OpStore }
func (r *Store) payloads(d *Dialect) []any {
	return []any{d.key(&r.Key), &r.Instance, (*blockLists)(&r.Blocks), (*bin)(&r.Event)}
}
func (*Store) result() any { return &Transfer{} }

func (*Retrieve) Op() Op { return OpRetrieve }
func (r *Retrieve) payloads(d *Dialect) []any {
	return []any{d.key(&r.Key), &r.Instance, (*blockLists)(&r.Blocks), (*bin)(&r.Event), &r.Skip}
}
func (*Retrieve) result() any { return &Transfer{} }

func (*Lookup) Op() Op                      { return OpLookup }
func (r *Lookup) payloads(d *Dialect) []any { return []any{d.key(&r.Key), &r.TPSize} }
func (*Lookup) result() any                 { return nil }

func (*QueryPrefetchStatus) Op() Op                    { return OpQueryPrefetchStatus }
func (r *QueryPrefetchStatus) payloads(*Dialect) []any { return []any{&r.RequestID} }
func (*QueryPrefetchStatus) result() any               { return new(int) }

func (*WaitPrefetchStatus) Op() Op                    { return OpWaitPrefetchStatus }
func (r *WaitPrefetchStatus) payloads(*Dialect) []any { return []any{&r.RequestID, &r.Timeout} }
func (*WaitPrefetchStatus) result() any               { return new(int) }

func (*QueryLookupHits) Op() Op                    { return OpQueryLookupHits }
func (r *QueryLookupHits) payloads(*Dialect) []any { return []any{&r.RequestID} }
func (*QueryLookupHits) result() any               { return new(int) }

func (*FreeLookupLocks) Op() Op                      { return OpFreeLookupLocks }
func (r *FreeLookupLocks) payloads(d *Dialect) []any { return []any{d.key(&r.Key), &r.TPSize} }
func (*FreeLookupLocks) result() any                 { return nil }

func (*EndSession) Op() Op                    { return OpEndSession }
func (r *EndSession) payloads(*Dialect) []any { return []any{&r.RequestID} }
func (*EndSession) result() any               { return nil }

func (*RegisterEngineDriven) Op() Op                    { return OpRegisterEngineDriven }
func (r *RegisterEngineDriven) payloads(*Dialect) []any { return []any{&r.Context} }
func (*RegisterEngineDriven) result() any               { return &Pool{} }

func (*UnregisterEngineDriven) Op() Op                    { return OpUnregisterEngine }
func (r *UnregisterEngineDriven) payloads(*Dialect) []any { return []any{&r.Instance} }
func (*UnregisterEngineDriven) result() any               { return nil }

func (*PrepareStore) Op() Op                      { return OpPrepareStore }
func (r *PrepareStore) payloads(d *Dialect) []any { return []any{d.key(&r.Key), &r.Instance} }
func (*PrepareStore) result() any                 { return &PreparedStore{} }

func (*CommitStore) Op() Op { return OpCommitStore }
func (r *CommitStore) payloads(d *Dialect) []any {
	return []any{d.key(&r.Key), &r.Instance, (*bin)(&r.Data)}
}
func (*CommitStore) result() any { return new(bool) }

func (*PrepareRetrieve) Op() Op                      { return OpPrepareRetrieve }
func (r *PrepareRetrieve) payloads(d *Dialect) []any { return []any{d.key(&r.Key), &r.Instance} }
func (*PrepareRetrieve) result() any                 { return &PreparedRetrieve{} }

func (*CommitRetrieve) Op() Op                      { return OpCommitRetrieve }
func (r *CommitRetrieve) payloads(d *Dialect) []any { return []any{d.key(&r.Key), &r.Instance} }
func (*CommitRetrieve) result() any                 { return new(bool) }

func (*Clear) Op() Op { return OpClear }
func (r *Clear) payloads(d *Dialect) []any {
	if !d.ClearForce {
		return nil
	}
	return []any{&r.Force}
}
func (*Clear) result() any { return nil }

func (*GetChunkSize) Op() Op                  { return OpGetChunkSize }
func (*GetChunkSize) payloads(*Dialect) []any { return nil }
func (*GetChunkSize) result() any             { return new(int) }

func (*Noop) Op() Op                  { return OpNoop }
func (*Noop) payloads(*Dialect) []any { return nil }
func (*Noop) result() any             { return new(string) }

func (*Ping) Op() Op { return OpPing }
func (r *Ping) payloads(d *Dialect) []any {
	if d.BarePing {
		return nil
	}
	return []any{(*optionalInt)(r)}
}
func (*Ping) result() any { return new(bool) }

func (*ReportBlockAllocation) Op() Op { return OpReportBlockAllocation }
func (r *ReportBlockAllocation) payloads(*Dialect) []any {
	return []any{&r.Instance, &r.Model, &r.Blocks}
}
func (*ReportBlockAllocation) result() any { return nil }

func (*GetExperimental) Op() Op                  { return OpGetExperimental }
func (*GetExperimental) payloads(*Dialect) []any { return nil }
func (*GetExperimental) result() any             { return new([]string) }

// A bin is written as bytes also when it is empty.
type bin []byte

// EncodeMsgpack writes it.
func (b *bin) EncodeMsgpack(e *msgpack.Encoder) error { return encodeBin(e, *b) }

// DecodeMsgpack reads it.
func (b *bin) DecodeMsgpack(d *msgpack.Decoder) error { return decodeValue(d, (*[]byte)(b)) }

// optionalInt is the instance of a ping.
type optionalInt Ping

// EncodeMsgpack writes nil where there is none.
func (o *optionalInt) EncodeMsgpack(e *msgpack.Encoder) error { return e.Encode(o.Instance) }

// DecodeMsgpack reads it.
func (o *optionalInt) DecodeMsgpack(d *msgpack.Decoder) error {
	o.Instance = nil
	if code, err := d.PeekCode(); err != nil || code == msgpcode.Nil {
		return errors.Join(err, d.DecodeNil())
	}
	o.Instance = new(int)
	return decodeValue(d, o.Instance)
}

// blockLists are block ids by group.
type blockLists [][]int

// EncodeMsgpack writes them.
func (b *blockLists) EncodeMsgpack(e *msgpack.Encoder) error {
	err := e.EncodeArrayLen(len(*b))
	for _, ids := range *b {
		err = errors.Join(err, ints(ids).EncodeMsgpack(e))
	}
	return err
}

// DecodeMsgpack reads them.
func (b *blockLists) DecodeMsgpack(d *msgpack.Decoder) error {
	n, err := decodeLen(d)
	if err != nil {
		return err
	}
	*b = make(blockLists, 0, min(n, 1024))
	for range n {
		var ids ints
		if err := ids.DecodeMsgpack(d); err != nil {
			return err
		}
		*b = append(*b, ids)
	}
	return nil
}

// A tensorList is the layers of a registration.
type tensorList struct {
	tensors *[]Tensor
	pickled bool
}

// EncodeMsgpack writes one extension for each.
func (l tensorList) EncodeMsgpack(e *msgpack.Encoder) error {
	err := e.EncodeArrayLen(len(*l.tensors))
	for i := range *l.tensors {
		if err == nil {
			err = tensorField{&(*l.tensors)[i], l.pickled}.EncodeMsgpack(e)
		}
	}
	return err
}

// DecodeMsgpack reads them.
func (l tensorList) DecodeMsgpack(d *msgpack.Decoder) error {
	n, err := decodeLen(d)
	if err != nil {
		return err
	}
	*l.tensors = make([]Tensor, 0, min(n, 1024))
	for i := range n {
		var t Tensor
		if err := (tensorField{&t, l.pickled}).DecodeMsgpack(d); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		*l.tensors = append(*l.tensors, t)
	}
	return nil
}
