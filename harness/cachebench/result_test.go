package cachebench

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server is not to be used again after a call that may have left something
// locked or reserved there, however it failed.
func TestFailedCallsTaintTheServer(t *testing.T) {
	for name, unsafe := range map[string]bool{"lookup": true, "store": true, "retrieve": true, "end_session": false, "checksum": false} {
		t.Run(name, func(t *testing.T) {
			r := &record{result: &Result{Calls: map[string]Calls{}}}
			r.call(name, "warm", "req-1", errors.New("3 slots for 4 chunks"))
			require.Len(t, r.result.Findings, 1)
			require.Equal(t, unsafe, len(r.result.Unsafe) > 0, "%v", r.result.Unsafe)
		})
	}
}
