package model

import "math"

const (
	// tileRows is how many rows of queries are scored at once: enough to use
	// each key that is read for many of them.
	tileRows = 64
	// keyRun is how many keys are weighed at once: their values stay in the
	// first-level cache. Runs are added in order, which keeps the bits.
	keyRun = 128
)

// attend computes causal attention of the new tokens of one sequence over all
// its tokens. qkv holds a row per new token, turned to its position; attended
// receives Heads·HeadDim values for each.
//
// A token that is attended is never skipped: neither its weight nor the
// element of a query that meets its key is ever exactly zero, so NaN or
// infinity in its KV reaches the output. Tokens beyond the attending one
// weigh exactly zero and are skipped, whatever lies there.
func (m *Model) attend(layer, blockSize int, s Sequence, qkv, attended []float32, room *scratch) (flops int64) {
	c := m.config
	group := c.Heads / c.KVHeads
	keyStride := m.gather(layer, blockSize, s, room)
	tile := max(1, tileRows/group)
	for first := 0; first < len(s.Tokens); first += tile {
		tokens := min(tile, len(s.Tokens)-first)
		visible := s.Start + first + tokens // to the last token of the tile
		rows := tokens * group
		room.queries = fit(room.queries, rows*c.HeadDim)
		room.scores = fit(room.scores, rows*visible)
		room.mixed = fit(room.mixed, rows*c.HeadDim)
		room.sums = fit(room.sums, rows)
		queries := view(rows, c.HeadDim, c.HeadDim, room.queries)
		scores := view(rows, visible, visible, room.scores)
		mixed := view(rows, c.HeadDim, c.HeadDim, room.mixed)
		for head := range c.KVHeads {
			m.collect(qkv, first, tokens, head, room.queries)
			keys := room.keys[head*c.HeadDim*keyStride:]
			multiply(queries, view(c.HeadDim, visible, keyStride, keys), 0, scores)
			for row := range rows {
				attending := s.Start + first + row/group
				room.sums[row] = weigh(room.scores[row*visible:(row+1)*visible], attending+1)
				flops += 4 * int64(attending+1) * int64(c.HeadDim)
			}
			clear(room.mixed)
			for key := 0; key < visible; key += keyRun {
				run := min(keyRun, visible-key)
				multiply(
					view(rows, run, visible, room.scores[key:]),
					view(run, c.HeadDim, c.kvDim(), room.values[key*c.kvDim()+head*c.HeadDim:]),
					1, mixed)
			}
			m.spread(room, first, tokens, head, attended)
		}
	}
	return flops
}

// gather copies the KV of one layer from its blocks into room.keys, transposed
// to kvDim × tokens so that it can be the right-hand side of a product, and
// room.values, tokens × kvDim. It returns the stride of a row of keys.
func (m *Model) gather(layer, blockSize int, s Sequence, room *scratch) (keyStride int) {
	kv := m.config.kvDim()
	// An odd number of cache lines: rows a power of two apart would fall into
	// the same few sets of the cache.
	keyStride = (s.end()+15)/16*16 | 16
	room.keys = fit(room.keys, kv*keyStride)
	room.values = fit(room.values, s.end()*kv)
	const strip = 16 // tokens that are transposed together, within the cache
	for first := 0; first < s.end(); first += blockSize {
		block, tokens := s.Blocks[first/blockSize], min(blockSize, s.end()-first)
		from, _ := m.PlaneSpan(blockSize, layer, Values)
		copy(room.values[first*kv:], block[from:from+tokens*kv])
		from, _ = m.PlaneSpan(blockSize, layer, Keys)
		for token := 0; token < tokens; token += strip {
			keys := block[from+token*kv : from+min(token+strip, tokens)*kv]
			for i := range kv {
				row := room.keys[i*keyStride+first+token:]
				for at, j := i, 0; at < len(keys); at, j = at+kv, j+1 {
					row[j] = keys[at]
				}
			}
		}
	}
	return keyStride
}

// collect copies the queries that share a key head, token by token, scaled by
// 1/√HeadDim.
func (m *Model) collect(qkv []float32, first, tokens, kvHead int, queries []float32) {
	c := m.config
	width, span := c.queryDim()+2*c.kvDim(), c.Heads/c.KVHeads*c.HeadDim
	scale := float32(1 / math.Sqrt(float64(c.HeadDim)))
	for token := range tokens {
		from := (first+token)*width + kvHead*span
		into := queries[token*span : (token+1)*span]
		for i, x := range qkv[from : from+span] {
			into[i] = x * scale
			if into[i] == 0 {
				into[i] = smallest
			}
		}
	}
}

// weigh turns the scores of the visible keys, which come first, into weights
// that are not normalized yet and returns their sum; the others weigh zero.
func weigh(scores []float32, visible int) (sum float32) {
	attended := scores[:visible]
	highest := attended[0]
	for _, score := range attended {
		if score > highest {
			highest = score
		}
	}
	for i, score := range attended {
		weight := exp(score - highest)
		attended[i] = weight
		sum += weight
	}
	clear(scores[visible:])
	return sum
}

// spread writes the normalized outputs of the queries that share a key head to
// their places.
func (m *Model) spread(room *scratch, first, tokens, kvHead int, attended []float32) {
	c := m.config
	group := c.Heads / c.KVHeads
	for token := range tokens {
		for member := range group {
			row := token*group + member
			scale := 1 / room.sums[row]
			at := (first+token)*c.queryDim() + (kvHead*group+member)*c.HeadDim
			into := attended[at : at+c.HeadDim]
			for i, x := range room.mixed[row*c.HeadDim : (row+1)*c.HeadDim] {
				into[i] = x * scale
			}
		}
	}
}
