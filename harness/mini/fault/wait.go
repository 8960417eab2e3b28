package fault

import (
	"context"
	"time"
)

// Wait lets time pass for a fault that is late on purpose, until ctx ends.
func Wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
