package host

import "time"

// CopyRate measures how fast this process copies memory, in bytes per second:
// the roofline of KV that is loaded from memory on the same machine. It takes
// the best of a few copies of 32 MiB between pages that were touched before,
// some ten milliseconds in all.
func CopyRate() float64 {
	const size, copies = 32 << 20, 5
	from, to := make([]byte, size), make([]byte, size)
	for i := 0; i < size; i += 4096 {
		from[i], to[i] = 1, 1
	}
	best := time.Duration(0)
	for range copies {
		start := time.Now()
		copy(to, from)
		if took := time.Since(start); best == 0 || took < best {
			best = took
		}
	}
	return size / max(best, time.Nanosecond).Seconds()
}
