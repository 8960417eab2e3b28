package lmcache

import "fmt"

// flush writes x to L2 if that is still to be done.
func (o *objects) flush(x *object) {
	if !x.dirty {
		return
	}
	x.dirty = false
	if err := o.disk.write(x.key.fileName(), x.place.data); err != nil {
		o.counts.failed++
		o.problem("chunk %s: %v", x.key, err)
	}
}

// work writes what is readable to L2, until the end has come and nothing is
// left to write. Between two objects others get the lock.
func (o *objects) work() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for len(o.queue) == 0 {
			if o.closed {
				return
			}
			o.wake.Wait()
		}
		x := o.queue[0]
		o.queue = o.queue[1:]
		o.inFlight++
		o.mu.Unlock()
		o.beforeWrite()
		o.mu.Lock()
		if !x.gone {
			o.flush(x)
		}
		o.inFlight--
	}
}

// stop lets work end.
func (o *objects) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.wake.Broadcast()
}

// clear empties L1: of what nobody reads or has been promised, or with force
// of all but what is being written. It returns how many objects went.
func (o *objects) clear(force, files bool) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	cleared := 0
	for _, x := range o.byKey {
		if !x.readable() || o.busy(x) && !force {
			continue
		}
		if !files {
			o.flush(x)
		}
		if !x.temporary() {
			o.counts.evicted++
			cleared++
		}
		o.remove(x)
	}
	if !files || o.disk == nil {
		return cleared, nil
	}
	o.queue = nil
	if err := o.disk.clear(); err != nil {
		return cleared, fmt.Errorf("clearing L2: %w", err)
	}
	return cleared, nil
}

// forgetFiles drops what has left L2 from the list of what was written, once
// that is half of it.
func (o *objects) forgetFiles() {
	if len(o.onDisk) <= 2*len(o.disk.files) {
		return
	}
	for key := range o.onDisk {
		if !o.disk.has(key.fileName()) {
			delete(o.onDisk, key)
		}
	}
}
