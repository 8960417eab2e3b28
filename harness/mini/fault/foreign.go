package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
)

// foreign is a request of somebody else's: a prompt of two blocks that nobody
// else asks about, and one token of output.
func (i *Injector) foreign(ctx context.Context, next http.Handler) {
	i.mu.Lock()
	i.strangers++
	n := i.strangers
	i.mu.Unlock()
	prompt := make([]int32, 2*i.blockSize)
	for at := range prompt {
		prompt[at] = int32(8 + (n*31+at*n)%200)
	}
	body, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": 1})
	if err != nil {
		return // numbers only
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/completions", bytes.NewReader(body))
	if err != nil {
		return // a constant address
	}
	r.Header.Set("Content-Type", "application/json")
	next.ServeHTTP(&recorder{header: http.Header{}, code: http.StatusOK}, r)
}
