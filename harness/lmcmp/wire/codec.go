package wire

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Encode returns v as one msgpack document, integers in their shortest form,
// as msgspec writes them.
func Encode(v any) ([]byte, error) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.out.Reset()
	e.Reset(&e.out)
	e.UseCompactInts(true)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding %T: %w", v, err)
	}
	return bytes.Clone(e.out.Bytes()), nil
}

type encoder struct {
	*msgpack.Encoder
	out bytes.Buffer
}

var encoders = sync.Pool{New: func() any { return &encoder{Encoder: msgpack.NewEncoder(io.Discard)} }}

// Decode reads one msgpack document into what v points to. What follows the
// document is an error.
func Decode(document []byte, v any) error {
	r := bytes.NewReader(document)
	d := msgpack.NewDecoder(r)
	if err := decodeValue(d, v); err != nil {
		return fmt.Errorf("decoding %T: %w", v, err)
	}
	if r.Len() > 0 {
		return fmt.Errorf("decoding %T: %d bytes are left over", v, r.Len())
	}
	return nil
}

// decodeValue is strict where the server is: a number that is not whole is no
// integer, an integer is no string. A bool is taken for an integer and an
// integer for a float, as observed.
func decodeValue(d *msgpack.Decoder, v any) error {
	switch v := v.(type) {
	case msgpack.CustomDecoder: // also one that is no pointer but holds some
		return v.DecodeMsgpack(d)
	case *int:
		n, err := decodeInt(d)
		*v = n
		return err
	case *uint64:
		n, err := decodeInt(d)
		if err == nil && n < 0 {
			err = fmt.Errorf("%d is negative", n)
		}
		*v = uint64(n)
		return err
	case *[]byte:
		code, err := d.PeekCode()
		if err == nil && !msgpcode.IsBin(code) {
			err = fmt.Errorf("want bytes, not the code %#x", code)
		}
		if err != nil {
			return err
		}
		*v, err = d.DecodeBytes()
		return err
	default:
		return d.Decode(v)
	}
}

func decodeInt(d *msgpack.Decoder) (int, error) {
	code, err := d.PeekCode()
	if err != nil {
		return 0, err
	}
	switch code {
	case msgpcode.True, msgpcode.False:
		b, err := d.DecodeBool()
		if b {
			return 1, err
		}
		return 0, err
	case msgpcode.Float, msgpcode.Double, msgpcode.Nil:
		return 0, fmt.Errorf("want an integer, not the code %#x", code)
	}
	return d.DecodeInt()
}

// Tokens are token ids, each below 2^32.
type Tokens []uint32

// EncodeMsgpack writes them without reflection: they are the bulk of a request.
func (t Tokens) EncodeMsgpack(e *msgpack.Encoder) error {
	if err := e.EncodeArrayLen(len(t)); err != nil {
		return err
	}
	for _, id := range t {
		if err := e.EncodeUint(uint64(id)); err != nil {
			return err
		}
	}
	return nil
}

// DecodeMsgpack reads them.
func (t *Tokens) DecodeMsgpack(d *msgpack.Decoder) error {
	n, err := decodeLen(d)
	if err != nil {
		return err
	}
	*t = make(Tokens, 0, min(n, 1<<16))
	for range n {
		id, err := decodeInt(d)
		if err != nil {
			return err
		}
		if id < 0 || id >= 1<<32 {
			return fmt.Errorf("token %d is not in [0, 2^32)", id)
		}
		*t = append(*t, uint32(id))
	}
	return nil
}

// decodeLen reads the head of an array.
func decodeLen(d *msgpack.Decoder) (int, error) {
	code, err := d.PeekCode()
	if err != nil {
		return 0, err
	}
	if code == msgpcode.Nil {
		return 0, fmt.Errorf("want an array, not nil")
	}
	n, err := d.DecodeArrayLen()
	if err != nil || n > maxMessage {
		return 0, fmt.Errorf("reading the head of an array: %w", errOr(err, "it is too long"))
	}
	return n, nil
}

func errOr(err error, otherwise string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s", otherwise)
}
