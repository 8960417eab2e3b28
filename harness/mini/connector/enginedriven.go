package connector

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvproof/kvproof/harness/lmcmp/shm"
	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// engineDriven copies from and to the server's pool.
type engineDriven struct {
	*Connector
	pool Pool
}

func newEngineDriven(ctx context.Context, c *Connector) (transfer, error) {
	var where wire.Pool
	_, err := c.dealer.Call(ctx, &wire.RegisterEngineDriven{Context: wire.EngineContext{
		Instance: c.instance, Model: c.config.Model, WorldSize: 1, BlockSize: c.config.BlockSize,
		Layers: c.config.Layers, Hidden: c.config.Hidden, DType: "float32", Slots: c.chunk,
	}}, &where)
	if err != nil {
		return nil, fmt.Errorf("%w (a server that does not offer %s does not answer)", err, EngineDriven)
	}
	if where.Name == "" || where.Size <= 0 {
		return nil, errors.New("the server has no pool in shared memory; LMCache has one when it is started with --shm-name")
	}
	open := c.config.Open
	if open == nil {
		open = func(name string, size int) (Pool, error) { return shm.Open("/"+name, size) }
	}
	pool, err := open(where.Name, where.Size)
	if err != nil {
		return nil, err
	}
	return &engineDriven{c, pool}, nil
}

// slot is the memory of a slot.
func (e *engineDriven) slot(s wire.Slot) ([]byte, error) {
	pool := e.pool.Bytes()
	if s.Offset < 0 || s.Length < 0 || s.Offset > len(pool)-s.Length {
		return nil, fmt.Errorf("the server names bytes %d to %d of a pool of %d", s.Offset, s.Offset+s.Length, len(pool))
	}
	return pool[s.Offset : s.Offset+s.Length], nil
}

func (e *engineDriven) load(ctx context.Context, k wire.Key, dst [][]float32) error {
	var prepared wire.PreparedRetrieve
	if _, err := e.dealer.Call(ctx, &wire.PrepareRetrieve{Key: k, Instance: e.instance}, &prepared); err != nil {
		return err
	}
	if !prepared.Success {
		return errors.New("a chunk is not stored, or was evicted since it was looked up")
	}
	err := e.copySlots(k, prepared.Context.Slots, dst)
	var done bool
	_, commitErr := e.dealer.Call(context.WithoutCancel(ctx), &wire.CommitRetrieve{Key: k, Instance: e.instance}, &done)
	return errors.Join(err, commitErr)
}

func (e *engineDriven) copySlots(k wire.Key, slots []wire.Slot, dst [][]float32) error {
	if want := (k.End - k.Start) / e.chunk; len(slots) != want {
		return fmt.Errorf("the server names %d slots for %d chunks", len(slots), want)
	}
	for i, s := range slots {
		data, err := e.slot(s)
		if err == nil {
			err = e.copyChunk(data, k.Start/e.chunk+i, dst, true)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *engineDriven) store(ctx context.Context, k wire.Key, src [][]float32) error {
	var prepared wire.PreparedStore
	if _, err := e.dealer.Call(ctx, &wire.PrepareStore{Key: k, Instance: e.instance}, &prepared); err != nil {
		return err
	}
	slots, chunks := prepared.Context.Slots, prepared.Context.Chunks
	if len(slots) == 0 {
		return nil // all of it is there, or on its way
	}
	if len(slots) != len(chunks) {
		return fmt.Errorf("the server names %d slots for %d chunks", len(slots), len(chunks))
	}
	for i, s := range slots {
		data, err := e.slot(s)
		if err == nil {
			err = e.copyChunk(data, k.Start/e.chunk+chunks[i], src, false)
		}
		if err != nil {
			return err // what was prepared stays invisible
		}
	}
	var done bool
	if _, err := e.dealer.Call(ctx, &wire.CommitStore{Key: k, Instance: e.instance}, &done); err != nil {
		return err
	}
	if !done {
		return fmt.Errorf("the server did not keep %d chunks", len(slots))
	}
	return nil
}

func (e *engineDriven) close(ctx context.Context) error {
	_, err := e.dealer.Call(ctx, &wire.UnregisterEngineDriven{Instance: e.instance}, nil)
	return errors.Join(err, e.pool.Close())
}
