package tier

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Objects are values in up to two tiers. All methods are safe for concurrent
// use; files are read and written under the lock, so what one call sees in
// both tiers belongs together.
type Objects struct {
	cfg       Config
	high, low int64 // bytes of L1: above high, what is used goes down to low

	mu     sync.Mutex
	l1, l2 *level
	files  *files // nil: no L2
	misses int64
	closed bool
}

// New returns empty objects. Close removes their files.
func New(cfg Config) (*Objects, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("making the tiers of a store: %w", err)
	}
	o := &Objects{
		cfg: cfg, high: cfg.share(cfg.Watermark), low: cfg.share(cfg.Watermark - cfg.Ratio),
		l1: newLevel(cfg.L1Bytes), l2: newLevel(cfg.L2Bytes),
	}
	if cfg.L2Dir == "" {
		return o, nil
	}
	var err error
	if o.files, err = newFiles(cfg.L2Dir); err != nil {
		return nil, fmt.Errorf("making the tiers of a store: %w", err)
	}
	return o, nil
}

// Put copies data under key, in place of what was there, and makes it the most
// recently used object. It is in L1 and, where there is an L2, in its file when
// Put returns. An object that is larger than a whole tier is an error, and
// after an error of the disk the object is in neither tier.
func (o *Objects) Put(key Key, data []float32) error {
	size := 4 * int64(len(data))
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return fmt.Errorf("putting object %s: %w", key, ErrClosed)
	case size > o.cfg.L1Bytes:
		return fmt.Errorf("putting object %s of %d bytes: L1 has %d", key, size, o.cfg.L1Bytes)
	case o.cfg.L2Bytes > 0 && size > o.cfg.L2Bytes:
		return fmt.Errorf("putting object %s of %d bytes: L2 has %d", key, size, o.cfg.L2Bytes)
	}
	o.l1.remove(key)
	o.l2.remove(key)
	if o.files != nil {
		if err := o.write(key, data, size); err != nil {
			return err
		}
	}
	if o.l1.stats.Bytes+size > o.high {
		for o.l1.stats.Objects > 0 && o.l1.stats.Bytes+size > o.low {
			oldest, _ := o.l1.oldest()
			o.l1.remove(oldest)
			o.l1.stats.Evictions++
		}
	}
	o.l1.add(&entry{key: key, values: slices.Clone(data), size: size})
	return nil
}

// write makes room in L2 and writes an object that is in no index. o.mu is held.
func (o *Objects) write(key Key, data []float32, size int64) error {
	for o.cfg.L2Bytes > 0 && o.l2.stats.Bytes+size > o.cfg.L2Bytes {
		oldest, _ := o.l2.oldest()
		o.l2.remove(oldest)
		o.l2.stats.Evictions++
		if err := o.files.remove(oldest); err != nil {
			return err
		}
	}
	if err := o.files.write(key, data); err != nil {
		return errors.Join(err, o.files.remove(key)) // the file of an older Put
	}
	o.l2.add(&entry{key: key, size: size})
	return nil
}

// Get returns the values of an object, which must not be changed, and the tier
// that they came from, and makes the object the most recently used one. What
// is missing is (nil, None, nil). A file that is gone or has another length is
// an error. What comes from L2 is not put into L1.
func (o *Objects) Get(key Key) (data []float32, from Tier, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, None, fmt.Errorf("getting object %s: %w", key, ErrClosed)
	}
	switch o.where(key) {
	case L1:
		e := o.l1.find(key)
		o.touch(key)
		o.l1.hit(e.size)
		return e.values, L1, nil
	case L2:
		size := o.l2.find(key).size
		if data, err = o.files.read(key, size); err != nil {
			return nil, L2, err
		}
		o.touch(key)
		o.l2.hit(size)
		return data, L2, nil
	default:
		o.misses++
		return nil, None, nil
	}
}

// Where says which tier Get would read from. It counts and touches nothing.
func (o *Objects) Where(key Key) Tier {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.where(key)
}

func (o *Objects) where(key Key) Tier {
	switch {
	case o.l1.find(key) != nil:
		return L1
	case o.l2.find(key) != nil:
		return L2
	default:
		return None
	}
}

// Touch makes those of keys that are there the most recently used objects, the
// first key most of all.
func (o *Objects) Touch(keys ...Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range slices.Backward(keys) {
		o.touch(key)
	}
}

func (o *Objects) touch(key Key) {
	o.l1.touch(key)
	o.l2.touch(key)
}

// Delete removes objects from both tiers and returns how many there were.
func (o *Objects) Delete(keys ...Key) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	deleted := 0
	for _, key := range keys {
		in1, in2 := o.l1.remove(key), o.l2.remove(key)
		if in2 {
			// A file that stays is in no index any more and goes with Close.
			_ = o.files.remove(key)
		}
		if in1 || in2 {
			deleted++
		}
	}
	return deleted
}

// Reset empties both tiers. All objects are gone even where a file could not
// be removed, which is an error.
func (o *Objects) Reset() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var failed []error
	for key := range o.l2.entries {
		failed = append(failed, o.files.remove(key))
	}
	o.l1.clear()
	o.l2.clear()
	return errors.Join(failed...)
}

// Keys lists what is in either tier, in the order of the keys' bytes.
func (o *Objects) Keys() []Key {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := make([]Key, 0, max(len(o.l1.entries), len(o.l2.entries)))
	for key := range o.l1.entries {
		keys = append(keys, key)
	}
	for key := range o.l2.entries {
		if o.l1.find(key) == nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return bytes.Compare(a[:], b[:]) })
	return keys
}

// Mutate lets f change the values of an object in every tier that has it,
// behind the back of whoever reads it: what a Get has returned stays as it
// was. It counts and touches nothing. False: the object is not there, or its
// file could not be read or written.
func (o *Objects) Mutate(key Key, f func([]float32)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, file := o.l1.find(key), o.l2.find(key)
	var values []float32
	switch {
	case e != nil:
		values = slices.Clone(e.values)
	case file != nil:
		var err error
		if values, err = o.files.read(key, file.size); err != nil {
			return false
		}
	default:
		return false
	}
	f(values)
	if file != nil && o.files.write(key, values) != nil {
		return false
	}
	if e != nil {
		e.values = values
	}
	return true
}

// Eviction returns the watermark and the ratio that are in force, as shares of
// L1.
func (o *Objects) Eviction() (watermark, ratio float64) { return o.cfg.Watermark, o.cfg.Ratio }

// Stats returns the numbers of this moment.
func (o *Objects) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Stats{L1: o.l1.stats, L2: o.l2.stats, Misses: o.misses}
}

// Close forgets everything and removes the files. Put and Get fail afterwards.
// It may be called more than once.
func (o *Objects) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.l1.clear()
	o.l2.clear()
	if o.files == nil {
		return nil
	}
	return o.files.close()
}
