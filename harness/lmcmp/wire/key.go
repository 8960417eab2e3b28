package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// NoWorker is the worker of a lookup, which is not one's.
const NoWorker = -1

// A Key is the prompt that a request is about and the part of it that is
// meant. A server hashes the tokens itself, chunk by chunk.
type Key struct {
	Model     string
	WorldSize int
	Worker    int    // rank; NoWorker for lookup and free_lookup_locks
	Tokens    Tokens // the whole prompt, each time
	Start     int    // tokens; a multiple of the chunk
	End       int    // tokens; a multiple of the chunk, at most len(Tokens)
	RequestID string // joins a lookup with its answer and its session
	Salt      string // of another salt nothing is found
	Readers   int    // workers that will read what a lookup found; at least 1
}

// Check refuses what servers drop in silence: of the whole chunks of tokens
// only, an empty request id, a salt with a reserved character.
func (k *Key) Check(chunk int) error {
	switch {
	case k.RequestID == "":
		return errors.New("the request id is empty")
	case k.Model == "" || strings.Contains(k.Model, "@"):
		return fmt.Errorf("model name %q: must not be empty nor contain @", k.Model)
	case strings.ContainsAny(k.Salt, "@/\\\x00") || len(k.Salt) > 128:
		return fmt.Errorf("cache salt %q: at most 128 bytes, none of @ / \\ NUL", k.Salt)
	case k.WorldSize < 1 || k.Worker >= k.WorldSize:
		return fmt.Errorf("worker %d of a world of %d", k.Worker, k.WorldSize)
	case k.Readers < 1:
		return fmt.Errorf("%d readers of the KV: at least 1", k.Readers)
	case k.Start < 0 || k.End < k.Start || k.End > len(k.Tokens):
		return fmt.Errorf("tokens [%d, %d) of a prompt of %d", k.Start, k.End, len(k.Tokens))
	case k.Start%chunk != 0 || k.End%chunk != 0:
		return fmt.Errorf("tokens [%d, %d): must begin and end at a multiple of the server's chunk of %d", k.Start, k.End, chunk)
	}
	return nil
}

// A keyField is a key as one release writes it.
type keyField struct {
	*Key
	fields int
}

// EncodeMsgpack writes the fields in the order of upstream's clients. Servers
// skip what they do not know.
func (k keyField) EncodeMsgpack(e *msgpack.Encoder) error {
	worker := any(k.Worker)
	if k.Worker == NoWorker {
		worker = nil
	}
	fields := []struct {
		name  string
		value any
	}{
		{"model_name", k.Model},
		{"world_size", k.WorldSize},
		{"worker_id", worker},
		{"token_ids", k.Tokens},
		{"start", k.Start},
		{"end", k.End},
		{"request_id", k.RequestID},
		{"cache_salt", k.Salt},
		{"request_configs", nil},
		{"num_kv_readers", k.Readers},
	}[:k.fields]
	if err := e.EncodeMapLen(len(fields)); err != nil {
		return err
	}
	for _, f := range fields {
		if err := errors.Join(e.EncodeString(f.name), e.Encode(f.value)); err != nil {
			return err
		}
	}
	return nil
}

// DecodeMsgpack reads the fields in any order and skips unknown ones.
func (k keyField) DecodeMsgpack(d *msgpack.Decoder) error {
	n, err := decodeMapLen(d)
	if err != nil {
		return err
	}
	*k.Key = Key{Worker: NoWorker}
	missing := map[string]bool{"model_name": true, "world_size": true, "worker_id": true, "token_ids": true, "start": true, "end": true, "request_id": true}
	for range n {
		name, err := d.DecodeString()
		if err != nil {
			return err
		}
		delete(missing, name)
		if err := k.decodeField(d, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name := range missing {
		return fmt.Errorf("the key has no %s", name)
	}
	if strings.Contains(k.Salt, "@") {
		return fmt.Errorf("cache salt %q has an @", k.Salt)
	}
	return nil
}

func (k keyField) decodeField(d *msgpack.Decoder, name string) error {
	switch name {
	case "model_name":
		return decodeValue(d, &k.Model)
	case "world_size":
		return decodeValue(d, &k.WorldSize)
	case "worker_id":
		if code, err := d.PeekCode(); err != nil || code == msgpcode.Nil {
			return errors.Join(err, d.DecodeNil())
		}
		return decodeValue(d, &k.Worker)
	case "token_ids":
		return k.Tokens.DecodeMsgpack(d)
	case "start":
		return decodeValue(d, &k.Start)
	case "end":
		return decodeValue(d, &k.End)
	case "request_id":
		return decodeValue(d, &k.RequestID)
	case "cache_salt":
		return decodeValue(d, &k.Salt)
	case "num_kv_readers":
		return decodeValue(d, &k.Readers)
	}
	return d.Skip()
}

// decodeMapLen reads the head of a map.
func decodeMapLen(d *msgpack.Decoder) (int, error) {
	n, err := d.DecodeMapLen()
	if err == nil && n < 0 {
		err = errors.New("want a map, not nil")
	}
	return n, err
}
