package daser

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/mini/tier"
)

// The states of a document.
const (
	statusPrefilling = "prefilling"
	statusReady      = "ready"
	statusFailed     = "failed"
)

// A document is what was uploaded. Its fields are only written by the upload,
// under the registry's lock; others get copies.
type document struct {
	id, title, text string
	tokens          []int32 // padded to B; empty until it was tokenized
	key             tier.Key
	status          string
	failure         string // why status is failed
	created         time.Time
}

// A registry knows the documents. It is safe for concurrent use.
type registry struct {
	mu        sync.Mutex
	documents map[string]*document
	order     []string
	fixed     map[tier.Key]bool // segments that no document owns
}

func newRegistry() *registry {
	return &registry{documents: map[string]*document{}, fixed: map[tier.Key]bool{}}
}

// add returns the id of a new document.
func (g *registry) add(title, text string) string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	id := hex.EncodeToString(b)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.documents[id] = &document{id: id, title: title, text: text, status: statusPrefilling, created: time.Now()}
	g.order = append(g.order, id)
	return id
}

// change updates a document; one that was deleted stays so.
func (g *registry) change(id string, update func(*document)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.documents[id]; d != nil {
		update(d)
	}
}

func (g *registry) get(id string) (document, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, ok := g.documents[id]
	if !ok {
		return document{}, false
	}
	return *d, true
}

// all returns the documents in the order in which they came.
func (g *registry) all() []document {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]document, len(g.order))
	for i, id := range g.order {
		all[i] = *g.documents[id]
	}
	return all
}

// remove forgets a document. Where nothing else needs its chunk, evict is
// called for it, before another upload can come to need it.
func (g *registry) remove(id string, evict func(tier.Key)) (ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, ok := g.documents[id]
	if !ok {
		return false
	}
	delete(g.documents, id)
	g.order = slices.DeleteFunc(g.order, func(other string) bool { return other == id })
	if len(d.tokens) == 0 || g.fixed[d.key] {
		return true
	}
	for _, other := range g.documents {
		if other.key == d.key && len(other.tokens) > 0 {
			return true
		}
	}
	evict(d.key)
	return true
}

// keep protects a fixed segment from the deletion of documents.
func (g *registry) keep(key tier.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fixed[key] = true
}
