package harness

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvproof/kvproof/cuda"
	"github.com/kvproof/kvproof/harness/recipe"
)

// A roofline is the fastest that KV can be moved to where the engine needs it.
type roofline struct {
	name           string
	bytesPerSecond float64
}

func (r roofline) String() string { return fmt.Sprintf("%s, %.3g GB/s", r.name, r.bytesPerSecond/1e9) }

// rooflineBytes is how much is moved: more than caches hold.
const rooflineBytes = 64 << 20

// measureRoofline measures copies of blocks from the host's memory: to the GPU
// of the run where engines run in containers, else within that memory.
func (s *session) measureRoofline(blockBytes int) (roofline, error) {
	if !s.selection.gpu.Made || s.selection.stack.Engine != recipe.Docker {
		return hostCopy(blockBytes), nil
	}
	driver, err := cuda.Load()
	if err != nil {
		return roofline{}, fmt.Errorf("measuring the transfer roofline: %w", err)
	}
	return deviceCopy(driver, blockBytes)
}

// deviceCopy is the median of copies from pinned memory to the first GPU that
// this process sees, block by block, as an engine's blocks lie.
func deviceCopy(driver *cuda.Driver, blockBytes int) (roofline, error) {
	device, err := driver.Open(0)
	if err != nil {
		return roofline{}, fmt.Errorf("measuring the transfer roofline: %w", err)
	}
	var result cuda.TransferResult
	err = device.Do(func(c *cuda.Context) (err error) {
		result, err = c.Measure(cuda.Transfer{
			Direction: cuda.HostToDevice, Memory: cuda.Pinned, Bytes: max(1, rooflineBytes/blockBytes) * blockBytes, BlockBytes: blockBytes, Gated: true,
		})
		return err
	})
	if err := errors.Join(err, device.Close()); err != nil {
		return roofline{}, fmt.Errorf("measuring the transfer roofline: %w", err)
	}
	return roofline{"pinned memory to the GPU", result.Median()}, nil
}

// hostCopy is the best of a few passes of copying block by block.
func hostCopy(blockBytes int) roofline {
	const passes = 5
	from, to := make([]byte, rooflineBytes), make([]byte, rooflineBytes)
	for i := range from {
		from[i] = byte(i) // a page that was never written is not memory yet
	}
	copy(to, from)
	best := time.Duration(1<<63 - 1)
	for range passes {
		start := time.Now()
		for at := 0; at < len(from); at += blockBytes {
			copy(to[at:], from[at:min(at+blockBytes, len(from))])
		}
		best = min(best, time.Since(start))
	}
	return roofline{"a copy in memory", rooflineBytes / max(best.Seconds(), 1e-9)}
}
