package recipe

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/openai"
	"github.com/kvproof/kvproof/harness/probe"
	"github.com/kvproof/kvproof/harness/row"
)

// behindEngineCache is the row lmcache with the engine's own cache in front, as
// most run it: what the engine has it does not take from the server, which is
// asked all the same.
func behindEngineCache(s spec) spec {
	s.own = fixtures.VLLMLaw
	of := s.witnesses
	s.witnesses = func(b, tokenBytes int) []row.Witness {
		witnesses := of(b, tokenBytes)
		for i := range witnesses {
			switch w := &witnesses[i]; w.Name {
			case "engine":
				w.Tier, w.Asked = row.Beyond, nil // it asks for what its own cache left
			case "bytes": // LMCache's own "reads" count what a lookup found, loaded or freed (seen on 0.5.6)
				w.Tier = row.Loaded
			}
		}
		return append(witnesses, row.Witness{
			Name: "own", Source: "vllm:prefix_cache_hits", Probe: engineProbe, Required: true, Tier: row.Own,
			Law: s.own(b), Count: probe.VLLMLocal(), Asked: wholePrompt,
		})
	}
	return s
}

// ownCache is how the two caches of such a row are emptied, one at a time.
func (s spec) ownCache(b int, client *openai.Client, behind lmcacheServer) *row.OwnCache {
	return &row.OwnCache{
		Law:        s.own(b),
		Empty:      func(ctx context.Context) error { return client.ResetPrefixCache(ctx, false) },
		EmptyStore: behind.empty,
	}
}

// empty clears the server's memory. Force: a real server releases the locks of
// a retrieve some milliseconds after it has answered.
func (l lmcacheServer) empty(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.base+"/cache/clear", strings.NewReader(`{"tier":"l1","force":true}`))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := l.http.Do(request)
	if err != nil {
		return fmt.Errorf("clearing the cache server: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("clearing the cache server: POST %s/cache/clear: %s", l.base, response.Status)
	}
	return nil
}
