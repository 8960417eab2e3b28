package lmcache

import (
	"fmt"
	"slices"
)

// A found is what a lookup has found: leading chunks, and how many of them
// were in L1.
type found struct{ chunks, l1 int }

// lookup counts the leading rows whose objects are all there, and locks each
// of these objects for readers. Those of L2 are copied into L1 for as long.
func (o *objects) lookup(rows [][]objectKey, sizes []int, readers int) found {
	o.mu.Lock()
	defer o.mu.Unlock()
	var f found
	for _, row := range rows {
		slowest := inL1
		for _, key := range row {
			at := o.where(key)
			if at == nowhere {
				slowest = nowhere
				break
			}
			slowest = max(slowest, at)
		}
		if slowest == nowhere || !o.lockRow(row, sizes, readers) {
			break
		}
		f.chunks++
		if slowest == inL1 {
			f.l1++
		}
	}
	o.touch(slices.Concat(rows[:f.chunks]...)...)
	return f
}

// lockRow locks the objects of one chunk, or none.
func (o *objects) lockRow(row []objectKey, sizes []int, readers int) bool {
	var locked []*object
	for i, key := range row {
		x := o.byKey[key]
		if x == nil {
			x = o.fetch(key, sizes[i%len(sizes)])
		}
		if x == nil {
			o.unlock(locked, readers)
			return false
		}
		for range readers {
			x.locks = append(x.locks, o.now().Add(o.ttl))
		}
		locked = append(locked, x)
	}
	return true
}

// fetch copies an object of L2 into L1.
func (o *objects) fetch(key objectKey, size int) *object {
	p, ok := o.take(size)
	if !ok {
		o.problem("no room in L1 to read chunk %s from L2", key)
		return nil
	}
	if err := o.disk.read(key.fileName(), p.data); err != nil {
		o.memory.give(p)
		o.counts.failed++
		o.problem("chunk %s: %v", key, err)
		return nil
	}
	x := &object{key: key, place: p, fromL2: true}
	o.byKey[key] = x
	return x
}

// unlock takes n locks of each object back.
func (o *objects) unlock(locked []*object, n int) {
	for _, x := range locked {
		x.locks = x.locks[min(n, len(x.locks)):]
		o.settle(x)
	}
}

// settle drops a temporary copy that nobody reads any more.
func (o *objects) settle(x *object) {
	switch {
	case x.gone && x.pins == 0:
		return
	case x.temporary() && !x.gone && !o.busy(x):
		o.remove(x)
	}
}

// free takes the locks of a lookup back that nobody used.
func (o *objects) free(keys []objectKey, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range keys {
		if x := o.byKey[key]; x != nil {
			o.unlock([]*object{x}, n)
		}
	}
}

// pin returns the objects of keys, all of which must be readable, and keeps
// them in place until unpin.
func (o *objects) pin(keys []objectKey) ([]*object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	pinned := make([]*object, len(keys))
	for i, key := range keys {
		x := o.byKey[key]
		if x == nil || !x.readable() {
			return nil, fmt.Errorf("chunk %s is not in L1: it was never stored, or has left since it was looked up", key)
		}
		pinned[i] = x
	}
	for _, x := range pinned {
		x.pins++
	}
	o.touch(keys...)
	return pinned, nil
}

// unpin ends a read; with release it also takes back the lock of the lookup.
func (o *objects) unpin(pinned []*object, release bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range pinned {
		x.pins--
		if release && len(x.locks) > 0 {
			x.locks = x.locks[1:]
		}
		if x.gone && x.pins == 0 {
			o.memory.give(x.place)
			continue
		}
		o.settle(x)
	}
}

// scratch returns memory that is no object's, for what a fault puts in the
// place of one.
func (o *objects) scratch(size int) (place, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.take(size)
}

func (o *objects) discard(p place) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.memory.give(p)
}

// other returns the bytes of some object of that size whose key is not among
// those given: the least recently used one. Nil: there is none.
func (o *objects) other(keys []objectKey, size int) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for e := o.recent.Back(); e != nil; e = e.Prev() {
		x := e.Value.(*object)
		if len(x.place.data) == size && !slices.Contains(keys, x.key) {
			return slices.Clone(x.place.data)
		}
	}
	return nil
}

// objectStats is L1 and L2 at one moment.
type objectStats struct {
	objectCounts
	objects, temporary, writing, locked int
	used, reserved, l2Bytes, l2Evicted  int64
	pending, inFlight, l2Objects        int
}

func (o *objects) stats() objectStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := objectStats{objectCounts: o.counts, used: o.bytes, inFlight: o.inFlight}
	for _, x := range o.byKey {
		s.objects++
		switch {
		case !x.readable():
			s.writing++
			s.reserved += int64(len(x.place.data))
		case x.temporary():
			s.temporary++
			s.reserved += int64(len(x.place.data))
		}
		if o.busy(x) {
			s.locked++
		}
	}
	for _, x := range o.queue {
		if x.dirty && !x.gone {
			s.pending++
		}
	}
	if o.disk != nil {
		s.l2Bytes, s.l2Evicted, s.l2Objects = o.disk.used, o.disk.evicted, len(o.disk.files)
	}
	return s
}

// use makes keys the most recently used ones.
func (o *objects) use(keys []objectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.touch(keys...)
}

// reset forgets L1 altogether, as the end of a process does; L2 stays.
func (o *objects) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range o.byKey {
		o.flush(x)
		o.remove(x)
	}
	o.queue, o.counts = nil, objectCounts{}
}
