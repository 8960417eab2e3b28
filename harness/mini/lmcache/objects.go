package lmcache

import (
	"container/list"
	"math"
	"slices"
	"sync"
	"time"
)

// An object is the KV of one key in L1.
type object struct {
	key      objectKey
	place    place
	locks    []time.Time   // one for each reader that a lookup has promised it to: until when
	pins     int           // copies under way
	reserved time.Time     // until when somebody may write it; zero: it is readable
	used     *list.Element // its place in the order of use; nil: reserved, or a temporary copy of L2
	dirty    bool          // still to be written to L2
	gone     bool          // out of the index: its memory goes with the last pin
	fromL2   bool          // a temporary copy
}

func (x *object) readable() bool { return x.reserved.IsZero() }

func (x *object) temporary() bool { return x.fromL2 }

// objects are L1 and L2. Files are read and written under the lock, so what one
// call sees in both belongs together.
//
// Every object has one place in the order of use, whichever tiers it is in. A
// lookup makes the chunks that it found the most recently used ones, the first
// chunk most of all, and a retrieve those that it read. A store uses first the
// chunks of its range that are there, then all of them from the last to the
// first, each becoming readable if it is new; so the tail of a prompt leaves
// first. When an object that becomes readable would bring L1 above its
// watermark, the least recently used ones leave that nobody has locked, until
// it fits below watermark less ratio. All of them are in L2 as well, where
// there is one; what is read from there is not put into L1.
type objects struct {
	high, low int64 // bytes of L1
	ttl       time.Duration
	now       func() time.Time
	problem   func(format string, args ...any)

	mu       sync.Mutex
	memory   *memory
	disk     *disk // nil: no L2
	byKey    map[objectKey]*object
	onDisk   map[objectKey]int // bytes of what was written to L2, and perhaps has left it
	recent   *list.List        // of *object
	bytes    int64             // of what is readable and not temporary
	counts   objectCounts
	queue    []*object  // to be written to L2
	wake     *sync.Cond // the queue has grown, or the end has come
	inFlight int
	closed   bool
	// beforeWrite runs in the worker before it writes an object to L2.
	beforeWrite func()
}

// objectCounts only grow.
type objectCounts struct{ evicted, written, failed, refused int64 }

func newObjects(c Config, m *memory, d *disk, problem func(string, ...any)) *objects {
	share := func(of float64) int64 { return int64(math.Round(of * float64(c.L1Bytes))) }
	o := &objects{
		high: share(c.Watermark), low: share(c.Watermark - c.Ratio), ttl: c.LockTTL, now: time.Now, problem: problem,
		memory: m, disk: d, byKey: map[objectKey]*object{}, onDisk: map[objectKey]int{}, recent: list.New(), beforeWrite: func() {},
	}
	o.wake = sync.NewCond(&o.mu)
	return o
}

// A tier is where an object is found: the fastest place that has it.
type tier int

const (
	nowhere tier = iota
	inL1
	inL2
)

func (t tier) String() string { return [...]string{"none", "l1", "l2"}[t] }

func (o *objects) where(key objectKey) tier {
	x := o.byKey[key]
	switch {
	case x != nil && x.used != nil:
		return inL1
	case x != nil && x.readable(), o.disk.has(key.fileNameIf(o.disk)):
		return inL2
	}
	return nowhere
}

// touch makes those of keys that are there the most recently used ones, the
// first key most of all.
func (o *objects) touch(keys ...objectKey) {
	for _, key := range slices.Backward(keys) {
		if x := o.byKey[key]; x != nil && x.used != nil {
			o.recent.MoveToFront(x.used)
		}
		o.disk.touch(key.fileNameIf(o.disk))
	}
}

// busy says whether somebody reads x or has been promised to.
func (o *objects) busy(x *object) bool {
	now := o.now()
	x.locks = slices.DeleteFunc(x.locks, func(until time.Time) bool { return !until.After(now) })
	return x.pins > 0 || len(x.locks) > 0
}

// remove takes x out of L1.
func (o *objects) remove(x *object) {
	if o.byKey[x.key] == x {
		delete(o.byKey, x.key)
	}
	if x.used != nil {
		o.recent.Remove(x.used)
		x.used = nil
		o.bytes -= int64(len(x.place.data))
	}
	x.gone = true
	if x.pins == 0 {
		o.memory.give(x.place)
	}
}

// evictOldest lets the least recently used object go that can.
func (o *objects) evictOldest() bool {
	for e := o.recent.Back(); e != nil; e = e.Prev() {
		if x := e.Value.(*object); !o.busy(x) {
			o.flush(x)
			o.remove(x)
			o.counts.evicted++
			return true
		}
	}
	return false
}

// take finds memory. Where there is none, temporary copies go whose readers
// never came, reservations whose writers never did, and then the least
// recently used objects.
func (o *objects) take(size int) (place, bool) {
	if p, ok := o.memory.take(size); ok {
		return p, true
	}
	for _, x := range o.byKey {
		expired := !x.readable() && x.reserved.Before(o.now())
		if (x.temporary() || expired) && !o.busy(x) {
			o.remove(x)
		}
	}
	for {
		if p, ok := o.memory.take(size); ok {
			return p, true
		}
		if !o.evictOldest() {
			o.counts.refused++
			return place{}, false
		}
	}
}

// reserve makes room for objects that are in no tier and that nobody else is
// writing: nil stands for those that need none.
func (o *objects) reserve(keys []objectKey, sizes []int) []*object {
	o.mu.Lock()
	defer o.mu.Unlock()
	fresh := make([]*object, len(keys))
	for i, key := range keys {
		if x := o.byKey[key]; x != nil && !x.readable() && x.reserved.Before(o.now()) {
			o.remove(x)
		}
		if o.byKey[key] != nil || o.where(key) != nowhere {
			continue
		}
		p, ok := o.take(sizes[i])
		if !ok {
			o.problem("no room in L1 for chunk %s: all of it is locked or being written", key)
			continue
		}
		fresh[i] = &object{key: key, place: p, reserved: o.now().Add(writeTTL)}
		o.byKey[key] = fresh[i]
	}
	return fresh
}

// publish makes objects readable that were reserved; keys are all of the
// range, so that those which were there are used once more. It reports whether
// all of them are in L1 now, or were before.
func (o *objects) publish(keys []objectKey, fresh []*object) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := true
	o.touch(keys...)
	for i, key := range slices.Backward(keys) {
		if x := fresh[i]; x != nil {
			if x.gone || x.readable() {
				all = false
				continue
			}
			o.admit(x)
		}
		o.touch(key)
	}
	return all
}

func (o *objects) admit(x *object) {
	size := int64(len(x.place.data))
	if o.disk != nil {
		if err := o.disk.admit(x.key.fileName(), size); err != nil {
			o.counts.failed++
			o.problem("chunk %s: %v", x.key, err)
		} else {
			x.dirty = true
			o.onDisk[x.key] = len(x.place.data)
			o.forgetFiles()
			o.queue = append(o.queue, x)
			o.wake.Signal()
		}
	}
	if o.bytes+size > o.high {
		for o.bytes+size > o.low && o.evictOldest() {
			continue
		}
	}
	x.reserved = time.Time{}
	x.used = o.recent.PushFront(x)
	o.bytes += size
	o.counts.written++
}

// abandon gives reservations back.
func (o *objects) abandon(fresh []*object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range fresh {
		if x != nil && !x.gone && !x.readable() {
			o.remove(x)
		}
	}
}
