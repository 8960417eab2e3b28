//go:build lmcache

package bench_test

import (
	"bytes"
	"fmt"
	"os"
)

// flipStored flips bits of one value in each page of the pool that was written
// since it was empty.
func flipStored(pool string, empty []byte, mask byte) error {
	const page = 4096
	f, err := os.OpenFile(pool, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	now, pages := make([]byte, page), 0
	for at := 0; at+page <= len(empty); at += page {
		if _, err := f.ReadAt(now, int64(at)); err != nil {
			return err
		}
		if bytes.Equal(now, empty[at:at+page]) {
			continue
		}
		pages++
		if _, err := f.WriteAt([]byte{now[page/2+2] ^ mask}, int64(at+page/2+2)); err != nil {
			return err
		}
	}
	if pages == 0 {
		return fmt.Errorf("nothing was written to %s", pool)
	}
	return nil
}
