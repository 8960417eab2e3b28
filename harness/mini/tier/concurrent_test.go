package tier

import (
	"sync"
	"testing"
)

func TestConcurrentUse(t *testing.T) {
	o := open(t, Config{L1Bytes: 10 * one, L2Dir: t.TempDir(), L2Bytes: 20 * one})
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := range 60 {
				k := (7*i + w) % 30
				if err := o.Put(key(k), value(k)); err != nil {
					t.Errorf("Put: %v", err)
				}
				data, from, err := o.Get(key(k))
				if err != nil || from != None && data[0] != float32(k) {
					t.Errorf("Get = %v, %v, %v, want %v", data, from, err, value(k))
				}
				o.Touch(key(k+1), key(k+2))
				switch i % 10 {
				case 0:
					o.Delete(key(k))
				case 1:
					o.Mutate(key(k), func([]float32) {})
				case 2:
					o.Keys()
				case 3:
					if w == 0 && o.Reset() != nil {
						t.Error("Reset failed")
					}
				}
				if s := o.Stats(); s.L1.Bytes > 10*one || s.L2.Bytes > 20*one {
					t.Errorf("%d and %d bytes are used", s.L1.Bytes, s.L2.Bytes)
				}
			}
		})
	}
	workers.Wait()
}
