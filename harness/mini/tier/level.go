package tier

import "container/list"

// A level is the index of one tier: what is there, in the order of use.
type level struct {
	stats   TierStats
	entries map[Key]*list.Element
	recent  *list.List // of *entry, most recently used first
}

// An entry is an object in one tier. Its values are never changed: whoever
// wants others puts another slice in their place, so that a reader may go on
// reading without the lock.
type entry struct {
	key    Key
	values []float32 // nil in L2
	size   int64     // bytes
}

func newLevel(capacity int64) *level {
	return &level{stats: TierStats{Capacity: capacity}, entries: map[Key]*list.Element{}, recent: list.New()}
}

// find returns the entry of a key, or nil.
func (l *level) find(key Key) *entry {
	if e := l.entries[key]; e != nil {
		return e.Value.(*entry)
	}
	return nil
}

// add makes an entry of a new key the most recently used one.
func (l *level) add(e *entry) {
	l.entries[e.key] = l.recent.PushFront(e)
	l.stats.Objects++
	l.stats.Bytes += e.size
}

// touch makes an entry the most recently used one, if it is there.
func (l *level) touch(key Key) {
	if e := l.entries[key]; e != nil {
		l.recent.MoveToFront(e)
	}
}

// remove reports whether the key was there.
func (l *level) remove(key Key) bool {
	e := l.entries[key]
	if e == nil {
		return false
	}
	l.stats.Objects--
	l.stats.Bytes -= l.recent.Remove(e).(*entry).size
	delete(l.entries, key)
	return true
}

// oldest is the least recently used key.
func (l *level) oldest() (Key, bool) {
	e := l.recent.Back()
	if e == nil {
		return Key{}, false
	}
	return e.Value.(*entry).key, true
}

// clear removes everything.
func (l *level) clear() {
	clear(l.entries)
	l.recent.Init()
	l.stats.Objects, l.stats.Bytes = 0, 0
}

// hit counts an answer from this tier.
func (l *level) hit(size int64) {
	l.stats.Hits++
	l.stats.HitBytes += size
}
