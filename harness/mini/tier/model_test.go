package tier

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A naive is the documented rule in the slowest and shortest way: one list of
// objects in the order of use, searched from its ends.
type naive struct {
	l1Bytes, high, low, l2Bytes int // l2Bytes 0: unbounded
	hasL2                       bool
	objects                     []naiveObject // least recently used first
	evicted1, evicted2          int64
}

type naiveObject struct {
	key      Key
	values   []float32
	in1, in2 bool
}

func (n *naive) used() (l1, l2 int) {
	for _, o := range n.objects {
		if o.in1 {
			l1 += 4 * len(o.values)
		}
		if o.in2 {
			l2 += 4 * len(o.values)
		}
	}
	return l1, l2
}

func (n *naive) put(key Key, values []float32) bool {
	size := 4 * len(values)
	if size > n.l1Bytes || n.l2Bytes > 0 && size > n.l2Bytes {
		return false
	}
	n.remove(key)
	if l1, _ := n.used(); l1+size > n.high {
		for i := range n.objects {
			if l1, _ := n.used(); l1+size > n.low && n.objects[i].in1 {
				n.objects[i].in1 = false
				n.evicted1++
			}
		}
	}
	for i := range n.objects {
		if _, l2 := n.used(); n.l2Bytes > 0 && l2+size > n.l2Bytes && n.objects[i].in2 {
			n.objects[i].in2 = false
			n.evicted2++
		}
	}
	n.objects = append(n.objects, naiveObject{key, slices.Clone(values), true, n.hasL2})
	n.objects = slices.DeleteFunc(n.objects, func(o naiveObject) bool { return !o.in1 && !o.in2 })
	return true
}

func (n *naive) find(key Key) *naiveObject {
	for i := range n.objects {
		if n.objects[i].key == key {
			return &n.objects[i]
		}
	}
	return nil
}

func (n *naive) touch(key Key) {
	if found := n.find(key); found != nil {
		o := *found
		n.remove(key)
		n.objects = append(n.objects, o)
	}
}

func (n *naive) remove(key Key) int {
	before := len(n.objects)
	n.objects = slices.DeleteFunc(n.objects, func(o naiveObject) bool { return o.key == key })
	return before - len(n.objects)
}

func (o *naiveObject) tier() Tier {
	switch {
	case o == nil:
		return None
	case o.in1:
		return L1
	default:
		return L2
	}
}

// Random calls on objects of different sizes and on the model, with all that
// can be seen compared after each.
func TestAgainstTheModel(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 60 {
		n := naive{l1Bytes: 4 * (1 + random.IntN(20)), hasL2: random.IntN(3) > 0}
		cfg := Config{L1Bytes: int64(n.l1Bytes), Watermark: 1, Ratio: float64(random.IntN(4))/4 - 1e-9}
		n.high, n.low = n.l1Bytes, n.l1Bytes-n.l1Bytes/4*int(4*cfg.Ratio+0.5)
		if n.l1Bytes%16 != 0 { // or the quarters would need rounding
			n.low, cfg.Ratio = n.l1Bytes, -1
		}
		if n.hasL2 {
			cfg.L2Dir = t.TempDir()
			n.l2Bytes = random.IntN(2) * 4 * (1 + random.IntN(30))
			cfg.L2Bytes = int64(n.l2Bytes)
		}
		o := open(t, cfg)
		for step := range 120 {
			about := fmt.Sprintf("round %d, step %d, %+v", round, step, cfg)
			k := key(random.IntN(14))
			switch random.IntN(10) {
			case 0:
				require.Equal(t, n.remove(k), o.Delete(k), about)
			case 1:
				other := key(random.IntN(14))
				n.touch(other)
				n.touch(k)
				o.Touch(k, other)
			case 2:
				if random.IntN(20) == 0 {
					n.objects = nil
					require.NoError(t, o.Reset(), about)
				}
			case 3:
				found := n.find(k)
				require.Equal(t, found != nil, o.Mutate(k, func(v []float32) { v[0]++ }), about)
				if found != nil {
					found.values[0]++
				}
			case 4, 5, 6:
				data, from, err := o.Get(k)
				require.NoError(t, err, about)
				found := n.find(k)
				require.Equal(t, found.tier(), from, about)
				if found != nil {
					require.Equal(t, found.values, data, about)
				}
				n.touch(k)
			default:
				values := make([]float32, 1+random.IntN(4))
				values[0] = random.Float32()
				require.Equal(t, n.put(k, values), o.Put(k, values) == nil, about)
			}
			compare(t, &n, o, about)
		}
	}
}

func compare(t *testing.T, n *naive, o *Objects, about string) {
	t.Helper()
	stats := o.Stats()
	l1, l2 := n.used()
	require.Equal(t, []int64{int64(l1), int64(l2)}, []int64{stats.L1.Bytes, stats.L2.Bytes}, about)
	require.Equal(t, []int64{n.evicted1, n.evicted2}, []int64{stats.L1.Evictions, stats.L2.Evictions}, about)
	require.Len(t, o.Keys(), len(n.objects), about)
	for i := range 14 {
		require.Equal(t, n.find(key(i)).tier(), o.Where(key(i)), about)
	}
}
