package lmcache

import "sync"

// A delivery is what a retrieve gives a client: the objects themselves, or
// what a fault has put in their place.
type delivery struct {
	data    [][]byte // nil: nothing is copied, though it is said to be
	offsets []int    // of data in the pool; -1 where it is not there
	scratch []place
}

// deliver applies the faults on data. Stored bytes stay as they are: what is
// damaged is a copy, in the pool, since clients may read there themselves
// (inPool).
func (s *Server) deliver(keys []objectKey, pinned []*object, inPool bool) *delivery {
	d := &delivery{data: make([][]byte, len(pinned)), offsets: make([]int, len(pinned))}
	for i, x := range pinned {
		d.data[i], d.offsets[i] = x.place.data, x.place.from
	}
	if len(pinned) == 0 {
		return d
	}
	middle, last := len(pinned)/2, len(pinned)-1
	if s.has(CorruptByte) && d.replace(s, middle) {
		d.data[middle][len(d.data[middle])/2] ^= 0xff
	}
	if s.has(StaleChunk) && d.replace(s, last) {
		other := s.objects.other(keys, len(d.data[last]))
		clear(d.data[last])
		copy(d.data[last], other)
	}
	if s.has(SwappedChunks) && last > 0 && len(d.data[0]) == len(d.data[1]) {
		d.data[0], d.data[1] = d.data[1], d.data[0]
		d.offsets[0], d.offsets[1] = d.offsets[1], d.offsets[0]
	}
	if s.has(HitWithoutData) {
		for i := range d.data {
			switch {
			case !inPool:
				d.data[i] = nil
			case d.replace(s, i):
				clear(d.data[i])
			}
		}
	}
	return d
}

// replace puts a copy in the place of an object.
func (d *delivery) replace(s *Server, i int) bool {
	p, ok := s.objects.scratch(len(d.data[i]))
	if !ok {
		return false
	}
	copy(p.data, d.data[i])
	d.data[i], d.offsets[i] = p.data, p.from
	d.scratch = append(d.scratch, p)
	return true
}

func (d *delivery) discard(s *Server) {
	for _, p := range d.scratch {
		s.objects.discard(p)
	}
}

// A storeJob is objects that have been copied and are to become readable.
type storeJob struct {
	salt  string
	keys  []objectKey
	fresh []*object
}

// A storeQueue is the way of stores from acknowledged to readable.
type storeQueue struct {
	mu       sync.Mutex
	wake     *sync.Cond
	jobs     []storeJob
	inFlight int
	closed   bool
	// before runs before the objects of a job become readable.
	before func()
}

func newStoreQueue() *storeQueue {
	q := &storeQueue{before: func() {}}
	q.wake = sync.NewCond(&q.mu)
	return q
}

func (q *storeQueue) add(j storeJob) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs = append(q.jobs, j)
	q.wake.Signal()
}

func (q *storeQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

// next waits for a job; false: closed, and nothing is left.
func (q *storeQueue) next() (storeJob, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) == 0 {
		if q.closed {
			return storeJob{}, false
		}
		q.wake.Wait()
	}
	j := q.jobs[0]
	q.jobs = q.jobs[1:]
	q.inFlight++
	return j, true
}

func (q *storeQueue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inFlight--
}

// state is the chunks that wait and the jobs that are under way.
func (q *storeQueue) state() (pending, inFlight int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.jobs {
		for _, x := range j.fresh {
			if x != nil {
				pending++
			}
		}
	}
	return pending, q.inFlight
}

// makeVisible is the worker of the queue.
func (s *Server) makeVisible() {
	for {
		j, ok := s.visible.next()
		if !ok {
			return
		}
		s.visible.before()
		s.publish(j)
		s.visible.done()
	}
}

// publish makes objects readable and counts them.
func (s *Server) publish(j storeJob) bool {
	s.mu.Lock()
	s.stored = true // before anybody can see the objects: faults wait for it
	s.mu.Unlock()
	all := s.objects.publish(j.keys, j.fresh)
	s.metrics.Load().stored(j.salt, j.fresh)
	return all
}
