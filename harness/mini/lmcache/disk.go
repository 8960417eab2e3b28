package lmcache

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A disk is L2: a file of raw bytes for each object, with no checksum, so
// damage inside a file is served as it is. What is there counts as used from
// the moment that it is to be written. Its owner locks.
type disk struct {
	dir     string
	limit   int64 // bytes; 0: none
	used    int64
	files   map[string]*list.Element
	recent  *list.List // of *file, most recently used first
	evicted int64
}

type file struct {
	name string
	size int64
}

const fileSuffix = ".data"

// openDisk takes over what an earlier server left in dir.
func openDisk(dir string, limit int64) (*disk, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of L2: %w", err)
	}
	d := &disk{dir: dir, limit: limit, files: map[string]*list.Element{}, recent: list.New()}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the directory of L2: %w", err)
	}
	var found []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), fileSuffix) {
			found = append(found, info)
		}
	}
	slices.SortStableFunc(found, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range found {
		d.insert(info.Name(), info.Size())
	}
	return d, nil
}

func (d *disk) insert(name string, size int64) {
	d.files[name] = d.recent.PushFront(&file{name, size})
	d.used += size
}

// admit gives an object its place, for which older ones leave.
func (d *disk) admit(name string, size int64) error {
	if d.files[name] != nil {
		d.touch(name)
		return nil
	}
	if d.limit > 0 && size > d.limit {
		return fmt.Errorf("an object of %d bytes does not fit into an L2 of %d", size, d.limit)
	}
	for d.limit > 0 && d.used+size > d.limit {
		d.evicted++
		if err := d.remove(d.recent.Back().Value.(*file).name); err != nil {
			return err
		}
	}
	d.insert(name, size)
	return nil
}

func (d *disk) has(name string) bool { return d != nil && d.files[name] != nil }

func (d *disk) touch(name string) {
	if d != nil && d.files[name] != nil {
		d.recent.MoveToFront(d.files[name])
	}
}

// write replaces the file as a whole, so that none is ever half written. An
// object that has left meanwhile is not written.
func (d *disk) write(name string, data []byte) error {
	if !d.has(name) {
		return nil
	}
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path+".tmp", data, 0o644); err != nil {
		return fmt.Errorf("writing to L2: %w", errors.Join(err, discard(path+".tmp"), d.remove(name)))
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("writing to L2: %w", errors.Join(err, discard(path+".tmp"), d.remove(name)))
	}
	return nil
}

// read fills data, which must be as long as the file.
func (d *disk) read(name string, data []byte) error {
	got, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil {
		return fmt.Errorf("reading from L2: %w", err)
	}
	if len(got) != len(data) {
		return fmt.Errorf("reading from L2: %s has %d bytes, want %d", name, len(got), len(data))
	}
	copy(data, got)
	return nil
}

func (d *disk) remove(name string) error {
	if e := d.files[name]; e != nil {
		d.used -= d.recent.Remove(e).(*file).size
		delete(d.files, name)
	}
	return discard(filepath.Join(d.dir, name))
}

// clear removes every file that is an object.
func (d *disk) clear() error {
	var failed []error
	for name := range d.files {
		failed = append(failed, d.remove(name))
	}
	return errors.Join(failed...)
}

// discard removes a file that need not exist.
func discard(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a file of L2: %w", err)
	}
	return nil
}
