package tier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

// files are the objects of L2, one file each: the values as little-endian
// float32 and nothing else. Like LMCache's file adapter (observed on 0.5.6)
// it has no checksum, so damage inside a file is served as it is; to notice
// that is the task of the suite that runs against it.
type files struct{ dir string }

// newFiles makes a directory of its own below parent.
func newFiles(parent string) (*files, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of L2: %w", err)
	}
	dir, err := os.MkdirTemp(parent, "kvproof-l2-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for L2: %w", err)
	}
	return &files{dir}, nil
}

func (f *files) path(key Key) string { return filepath.Join(f.dir, key.String()+".data") }

// write replaces the object's file as a whole, so that none is ever half
// written. It does not wait for the disk: L2 ends with the process.
func (f *files) write(key Key, values []float32) error {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	unfinished := f.path(key) + ".tmp"
	if err := os.WriteFile(unfinished, data, 0o644); err != nil {
		return fmt.Errorf("writing object %s to L2: %w", key, errors.Join(err, f.discard(unfinished)))
	}
	if err := os.Rename(unfinished, f.path(key)); err != nil {
		return fmt.Errorf("writing object %s to L2: %w", key, errors.Join(err, f.discard(unfinished)))
	}
	return nil
}

// read returns the values of a file that must have size bytes.
func (f *files) read(key Key, size int64) ([]float32, error) {
	data, err := os.ReadFile(f.path(key))
	if err != nil {
		return nil, fmt.Errorf("reading object %s from L2: %w", key, err)
	}
	if int64(len(data)) != size {
		return nil, fmt.Errorf("reading object %s from L2: its file has %d bytes, want %d", key, len(data), size)
	}
	values := make([]float32, size/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values, nil
}

func (f *files) remove(key Key) error { return f.discard(f.path(key)) }

// discard removes a file that need not exist.
func (f *files) discard(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a file of L2: %w", err)
	}
	return nil
}

func (f *files) close() error {
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("removing the files of L2: %w", err)
	}
	return nil
}
