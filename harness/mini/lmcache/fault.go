package lmcache

import (
	"fmt"
	"slices"
	"strings"
)

// A Fault is one way for the cache server to be broken. The list is closed.
type Fault string

// Faults that can be planted, and cleared, while the server runs. Those on data
// act on each retrieve, in either transfer; what is stored stays whole. Those
// that strike do so once, and are then no longer planted.
const (
	CorruptByte         Fault = "corrupt-byte"
	StaleChunk          Fault = "stale-chunk"
	SwappedChunks       Fault = "swapped-chunks"
	HitWithoutData      Fault = "hit-without-data"
	SlowReply           Fault = "slow-reply"
	NoReply             Fault = "no-reply"
	OutOfOrder          Fault = "out-of-order"
	DuplicateReply      Fault = "duplicate-reply"
	WrongArity          Fault = "wrong-arity"
	Die                 Fault = "die"
	Restart             Fault = "restart"
	UnregisterMidFlight Fault = "unregister-mid-flight"
	LeakedLock          Fault = "leaked-lock"
)

var faults = []struct {
	fault Fault
	about string
}{
	{CorruptByte, "one byte of the middle chunk of a retrieve is another"},
	{StaleChunk, "the last chunk of a retrieve is another prompt's, or all zero where no other is stored"},
	{SwappedChunks, "the first two chunks of a retrieve change places (one chunk: it stays as it is)"},
	{HitWithoutData, "a retrieve says that it succeeded and copies nothing; a client that copies by itself finds zeros"},
	{SlowReply, "each reply about a prompt is late by a third of a second"},
	{NoReply, "a retrieve is carried out and never answered"},
	{OutOfOrder, "a reply waits until a later one of the same connection has been sent, or for a moment: no fault of the server's"},
	{DuplicateReply, "each reply about a prompt is sent twice"},
	{WrongArity, "a reply to a retrieve has one frame too many"},
	{Die, "at the first lookup after a store the server is gone: connections are cut, its ports are closed"},
	{Restart, "at the first lookup after a store the server starts anew: connections are cut, stores and registrations forgotten"},
	{UnregisterMidFlight, "at the first retrieve the server forgets who asks for it"},
	{LeakedLock, "a retrieve leaves the locks that its lookup took"},
}

// Faults lists them, in the order of help texts.
func Faults() []Fault {
	all := make([]Fault, len(faults))
	for i, f := range faults {
		all[i] = f.fault
	}
	return all
}

// ParseFaults reads a comma list of faults; an empty list is none.
func ParseFaults(list string) ([]Fault, error) {
	if list == "" {
		return nil, nil
	}
	var parsed []Fault
	for name := range strings.SplitSeq(list, ",") {
		parsed = append(parsed, Fault(strings.TrimSpace(name)))
	}
	return parsed, checkFaults(parsed)
}

// About says what is broken, in a sentence.
func (f Fault) About() string {
	for _, known := range faults {
		if known.fault == f {
			return known.about
		}
	}
	return ""
}

func checkFaults(list []Fault) error {
	for i, f := range list {
		if f.About() == "" {
			names := make([]string, len(faults))
			for i, known := range Faults() {
				names[i] = string(known)
			}
			return fmt.Errorf("fault %q of the cache server is not known; there are %s", f, strings.Join(names, ", "))
		}
		if slices.Contains(list[:i], f) {
			return fmt.Errorf("fault %q is named twice", f)
		}
	}
	return nil
}

// Plant plants faults beside those that are there.
func (s *Server) Plant(list ...Fault) error {
	if err := checkFaults(list); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range list {
		s.planted[f] = true
	}
	s.stored = false
	return nil
}

// Clear removes faults; without arguments, all. A server that has died stays
// dead.
func (s *Server) Clear(list ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(list) == 0 {
		clear(s.planted)
	}
	for _, f := range list {
		delete(s.planted, f)
	}
}

// Planted lists what is planted, in the order of Faults.
func (s *Server) Planted() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(Faults(), func(f Fault) bool { return !s.planted[f] })
}

func (s *Server) has(f Fault) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.planted[f]
}

// strikes says whether a fault is planted that strikes once, and takes it out.
func (s *Server) strikes(f Fault) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	struck := s.planted[f]
	delete(s.planted, f)
	return struck
}
