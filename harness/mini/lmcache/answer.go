package lmcache

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
)

// answer carries a request out. An error means that it is dropped: there is no
// reply that says so.
func (s *Server) answer(r wire.Request) (any, error) {
	switch r := r.(type) {
	case *wire.RegisterKVCache:
		return nil, s.registerPaged(r)
	case *wire.UnregisterKVCache:
		s.unregisterPaged(r.Instance)
		return nil, nil
	case *wire.RegisterEngineDriven:
		return s.registerEngine(&r.Context)
	case *wire.UnregisterEngineDriven:
		s.unregisterEngine(r.Instance)
		return nil, nil
	case *wire.Lookup:
		return nil, s.lookup(r)
	case *wire.QueryPrefetchStatus:
		return s.consume(r.RequestID), nil
	case *wire.WaitPrefetchStatus:
		return s.consume(r.RequestID), nil
	case *wire.QueryLookupHits:
		return s.peek(r.RequestID), nil
	case *wire.FreeLookupLocks:
		return nil, s.freeLocks(r)
	case *wire.EndSession:
		s.endSession(r.RequestID)
		return nil, nil
	case *wire.Store:
		return s.store(r)
	case *wire.Retrieve:
		return s.retrieve(r)
	case *wire.PrepareStore:
		return s.prepareStore(r)
	case *wire.CommitStore:
		return s.commitStore(r)
	case *wire.PrepareRetrieve:
		return s.prepareRetrieve(r)
	case *wire.CommitRetrieve:
		return s.commitRetrieve(r)
	case *wire.Clear:
		_, err := s.Empty(r.Force)
		return nil, err
	case *wire.GetChunkSize:
		return s.config.Chunk, nil
	case *wire.Noop:
		return "OK", nil
	case *wire.Ping:
		return true, nil
	case *wire.ReportBlockAllocation:
		return nil, nil
	case *wire.GetExperimental:
		return []string{}, nil
	}
	return nil, fmt.Errorf("no handler is registered for operation %s", r.Op())
}

// Empty empties L1, as a clear does: with force also of what is locked.
func (s *Server) Empty(force bool) (int, error) { return s.objects.clear(force, s.config.ClearL2) }

// checkKey refuses what upstream's server refuses to decode or to hash.
func (s *Server) checkKey(k *wire.Key) error {
	switch {
	case k.WorldSize < 1 || k.WorldSize > 255:
		return fmt.Errorf("a world of %d", k.WorldSize)
	case k.Worker != wire.NoWorker && (k.Worker < 0 || k.Worker >= k.WorldSize):
		return fmt.Errorf("worker %d of a world of %d", k.Worker, k.WorldSize)
	case strings.Contains(k.Model, "@"):
		return fmt.Errorf("model name %q has an @", k.Model)
	case strings.ContainsAny(k.Salt, "@/\\\x00") || len(k.Salt) > 128:
		return fmt.Errorf("cache salt %q: at most 128 bytes, none of @ / \\ NUL", k.Salt)
	}
	return nil
}

// chunksOf returns the hashes of the chunks that a transfer is about.
func (s *Server) chunksOf(k *wire.Key) ([]chunkHash, error) {
	if err := s.checkKey(k); err != nil {
		return nil, err
	}
	c := s.config.Chunk
	switch {
	case k.Worker == wire.NoWorker:
		return nil, errors.New("the key has no worker: a transfer is one rank's")
	case k.Start < 0 || k.End < k.Start || k.Start%c != 0 || k.End%c != 0:
		return nil, fmt.Errorf("tokens [%d, %d): both must be multiples of the chunk of %d", k.Start, k.End, c)
	case k.End > len(k.Tokens):
		return nil, fmt.Errorf("tokens [%d, %d) of a prompt of %d", k.Start, k.End, len(k.Tokens))
	}
	return hashChunks(k.Tokens, c, k.End)[k.Start/c:], nil
}

// rows returns the keys of chunks: for each one those of all its objects, of
// the key's rank or of all ranks.
func rows(k *wire.Key, hashes []chunkHash, groups int) [][]objectKey {
	first, last := k.Worker, k.Worker
	if k.Worker == wire.NoWorker {
		first, last = 0, k.WorldSize-1
	}
	all := make([][]objectKey, len(hashes))
	for i, h := range hashes {
		for rank := first; rank <= last; rank++ {
			for group := range groups {
				all[i] = append(all[i], objectKey{h, k.Model, rankOf(k.WorldSize, rank), group, k.Salt})
			}
		}
	}
	return all
}
