package wire

import (
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// extTensor is the msgpack extension that holds a [Tensor].
const extTensor = 1

// Kinds of memory that a server can open.
const (
	CPUShared = "cpu_shm"  // POSIX shared memory
	CUDARaw   = "cuda_raw" // device memory behind an IPC handle of the driver
)

// IPCHandleSize is the size of a CUDA IPC handle of memory or of an event.
const IPCHandleSize = 64

// A Tensor says where the server finds one layer of a paged KV cache.
type Tensor struct {
	Kind string

	Name   string // CPUShared: name of the segment, with the leading slash
	Handle []byte // CUDARaw: IPC handle of the allocation's base, 64 bytes
	Offset int    // CUDARaw: bytes from that base to the tensor
	Bytes  int    // the whole segment, or the tensor's part of the allocation

	DType  string // float16, bfloat16, float32 or uint8
	Shape  []int
	Stride []int  // elements
	Start  int    // elements before the first
	Device string // cpu, or the UUID of the GPU
}

// tensorFields are the fields of a descriptor by its kind, in the order of
// upstream's clients. A server refuses missing and unknown ones.
var tensorFields = map[string][]string{
	CPUShared: {"type", "shm_name", "nbytes", "version", "metadata"},
	CUDARaw:   {"type", "ipc_handle", "alloc_offset", "nbytes", "version", "metadata"},
}

var metadataFields = []string{"dtype", "shape", "stride", "storage_offset", "device_uuid"}

const tensorVersion = 1

// A tensorField is a tensor as one release writes it.
type tensorField struct {
	*Tensor
	pickled bool
}

// EncodeMsgpack writes extension 1 around a msgpack map, or around a pickle
// for releases up to 0.5.5.
func (t tensorField) EncodeMsgpack(e *msgpack.Encoder) error {
	var body []byte
	var err error
	if t.pickled {
		body, err = t.pickle()
	} else {
		body, err = Encode(tensorMap(t))
	}
	if err != nil {
		return err
	}
	if err := e.EncodeExtHeader(extTensor, len(body)); err != nil {
		return err
	}
	_, err = e.Writer().Write(body)
	return err
}

// DecodeMsgpack reads either body.
func (t tensorField) DecodeMsgpack(d *msgpack.Decoder) error {
	code, size, err := d.DecodeExtHeader()
	switch {
	case err != nil:
		return err
	case code != extTensor:
		return fmt.Errorf("want extension %d, not %d", extTensor, code)
	case size > 1<<20:
		return fmt.Errorf("a descriptor of %d bytes is refused", size)
	}
	body := make([]byte, size)
	if err := d.ReadFull(body); err != nil {
		return err
	}
	*t.Tensor = Tensor{}
	if t.pickled {
		return t.unpickle(body)
	}
	return Decode(body, tensorMap(t))
}

// A tensorMap is the msgpack body.
type tensorMap tensorField

// EncodeMsgpack writes the fields of the kind.
func (t tensorMap) EncodeMsgpack(e *msgpack.Encoder) error {
	fields, known := tensorFields[t.Kind]
	if !known {
		return fmt.Errorf("a tensor in memory of kind %q", t.Kind)
	}
	err := e.EncodeMapLen(len(fields))
	for _, name := range fields {
		err = errors.Join(err, e.EncodeString(name))
		switch name {
		case "type":
			err = errors.Join(err, e.EncodeString(t.Kind))
		case "shm_name":
			err = errors.Join(err, e.EncodeString(t.Name))
		case "ipc_handle":
			err = errors.Join(err, e.EncodeBytes(t.Handle))
		case "alloc_offset":
			err = errors.Join(err, e.EncodeInt(int64(t.Offset)))
		case "nbytes":
			err = errors.Join(err, e.EncodeInt(int64(t.Bytes)))
		case "version":
			err = errors.Join(err, e.EncodeInt(tensorVersion))
		case "metadata":
			err = errors.Join(err, t.encodeMetadata(e))
		}
	}
	return err
}

func (t tensorMap) encodeMetadata(e *msgpack.Encoder) error {
	return errors.Join(
		e.EncodeMapLen(len(metadataFields)),
		e.EncodeString("dtype"), e.EncodeString(t.DType),
		e.EncodeString("shape"), e.Encode(ints(t.Shape)),
		e.EncodeString("stride"), e.Encode(ints(t.Stride)),
		e.EncodeString("storage_offset"), e.EncodeInt(int64(t.Start)),
		e.EncodeString("device_uuid"), e.EncodeString(t.Device),
	)
}

// DecodeMsgpack reads the fields in any order, and refuses what is missing or
// unknown.
func (t tensorMap) DecodeMsgpack(d *msgpack.Decoder) error {
	var version int
	seen := map[string]bool{}
	err := decodeMap(d, func(name string) error {
		seen[name] = true
		switch name {
		case "type":
			return decodeValue(d, &t.Kind)
		case "version":
			return decodeValue(d, &version)
		case "shm_name":
			return decodeValue(d, &t.Name)
		case "ipc_handle":
			return decodeValue(d, &t.Handle)
		case "alloc_offset":
			return decodeValue(d, &t.Offset)
		case "nbytes":
			return decodeValue(d, &t.Bytes)
		case "metadata":
			return t.decodeMetadata(d)
		}
		return errors.New("unknown field")
	})
	if err != nil {
		return err
	}
	fields, known := tensorFields[t.Kind]
	if !known {
		return fmt.Errorf("a tensor in memory of kind %q", t.Kind)
	}
	for _, name := range fields {
		if !seen[name] {
			return fmt.Errorf("the descriptor has no %s", name)
		}
	}
	if len(seen) != len(fields) {
		return fmt.Errorf("the descriptor of kind %s has fields of another kind", t.Kind)
	}
	if version != tensorVersion {
		return fmt.Errorf("descriptor version %d, want %d", version, tensorVersion)
	}
	return nil
}

func (t tensorMap) decodeMetadata(d *msgpack.Decoder) error {
	seen := map[string]bool{}
	err := decodeMap(d, func(name string) error {
		seen[name] = true
		switch name {
		case "dtype":
			return decodeValue(d, &t.DType)
		case "shape":
			return (*ints)(&t.Shape).DecodeMsgpack(d)
		case "stride":
			return (*ints)(&t.Stride).DecodeMsgpack(d)
		case "storage_offset":
			return decodeValue(d, &t.Start)
		case "device_uuid":
			return decodeValue(d, &t.Device)
		}
		return errors.New("unknown field")
	})
	for _, name := range metadataFields {
		if err == nil && !seen[name] {
			err = fmt.Errorf("there is no %s", name)
		}
	}
	return err
}

// decodeMap calls field for each name; it reads the value.
func decodeMap(d *msgpack.Decoder, field func(name string) error) error {
	n, err := decodeMapLen(d)
	if err != nil {
		return err
	}
	for range n {
		name, err := d.DecodeString()
		if err != nil {
			return err
		}
		if err := field(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// ints are written compactly and read strictly.
type ints []int

// EncodeMsgpack writes them.
func (v ints) EncodeMsgpack(e *msgpack.Encoder) error {
	err := e.EncodeArrayLen(len(v))
	for _, n := range v {
		err = errors.Join(err, e.EncodeInt(int64(n)))
	}
	return err
}

// DecodeMsgpack reads them.
func (v *ints) DecodeMsgpack(d *msgpack.Decoder) error {
	n, err := decodeLen(d)
	if err != nil {
		return err
	}
	*v = make(ints, 0, min(n, 1<<16))
	for range n {
		value, err := decodeInt(d)
		if err != nil {
			return err
		}
		*v = append(*v, value)
	}
	return nil
}
