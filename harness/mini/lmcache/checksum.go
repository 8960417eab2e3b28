package lmcache

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// A checksumRequest is the body of POST /cache/checksums.
type checksumRequest struct {
	BlockIDs  []int `json:"block_ids"`
	ChunkSize int   `json:"chunk_size"` // blocks per chunk
	Instance  int   `json:"instance_id"`
	Layerwise bool  `json:"layerwise"`
}

// checksums answers with the MD5 of what lies in a client's blocks, chunk by
// chunk. It looks at the registered tensors and says nothing about L1.
func (s *Server) checksums(w http.ResponseWriter, r *http.Request) {
	var q checksumRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		refuse(w, http.StatusUnprocessableEntity, fmt.Sprintf("reading the body: %v", err))
		return
	}
	s.writeChecksums(w, q)
}

// oldChecksums is the same for releases up to 0.5.0.
func (s *Server) oldChecksums(w http.ResponseWriter, r *http.Request) {
	var q checksumRequest
	query := r.URL.Query()
	var err error
	q.BlockIDs, err = blockList(query.Get("block_ids"))
	for _, number := range []struct {
		name string
		into *int
	}{{"chunk_size", &q.ChunkSize}, {"instance_id", &q.Instance}} {
		if text := query.Get(number.name); text != "" && err == nil {
			*number.into, err = strconv.Atoi(text)
		}
	}
	if text := query.Get("layerwise"); text != "" && err == nil {
		q.Layerwise, err = strconv.ParseBool(text)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("reading the query: %v", err))
		return
	}
	s.writeChecksums(w, q)
}

// blockList reads ids in the form of those releases: 1,2,[9,12],17, where
// brackets hold the first and the last of a range.
func blockList(text string) ([]int, error) {
	var ids []int
	for text != "" {
		item, rest, _ := strings.Cut(text, ",")
		first, isRange := strings.CutPrefix(item, "[")
		last := first
		if isRange {
			var closed bool
			if last, rest, closed = strings.Cut(rest, "]"); !closed {
				return nil, fmt.Errorf("block ids %q: a range is not closed", text)
			}
			rest = strings.TrimPrefix(rest, ",")
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || to < from || to-from > 1<<20 {
			return nil, fmt.Errorf("block ids %q: want numbers and [first,last]", text)
		}
		for id := from; id <= to; id++ {
			ids = append(ids, id)
		}
		text = rest
	}
	return ids, nil
}

func (s *Server) writeChecksums(w http.ResponseWriter, q checksumRequest) {
	s.mu.Lock()
	p := s.paged[q.Instance]
	s.mu.Unlock()
	switch {
	case p == nil:
		refuse(w, http.StatusNotFound, fmt.Sprintf("instance_id %d not registered", q.Instance))
		return
	case len(q.BlockIDs) == 0:
		refuse(w, http.StatusBadRequest, "block_ids is required")
		return
	case q.ChunkSize <= 0:
		refuse(w, http.StatusBadRequest, "chunk_size must be positive")
		return
	}
	p.using.RLock()
	defer p.using.RUnlock()
	if p.closed {
		refuse(w, http.StatusNotFound, fmt.Sprintf("instance_id %d not registered", q.Instance))
		return
	}
	if p.gpu != nil {
		refuse(w, http.StatusNotImplemented, "checksums of device memory are not computed here")
		return
	}
	for _, v := range p.layers {
		if slices.ContainsFunc(q.BlockIDs, func(id int) bool { return id < 0 || id >= v.blocks }) {
			refuse(w, http.StatusBadRequest, fmt.Sprintf("block_ids %v: there are %d blocks", q.BlockIDs, v.blocks))
			return
		}
	}
	answer := map[string]any{
		"status": "success", "chunk_size": q.ChunkSize, "num_chunks": (len(q.BlockIDs) + q.ChunkSize - 1) / q.ChunkSize,
		"layerwise": q.Layerwise, "block_id_ranges": ranges(q.BlockIDs),
	}
	if q.Layerwise {
		layers := map[string][]string{}
		for i, v := range p.layers {
			layers[fmt.Sprintf("layer_%d", i)] = digests([]*view{v}, q.BlockIDs, q.ChunkSize)
		}
		answer["chunk_checksums"] = layers
	} else {
		answer["chunk_checksums"] = digests(p.layers, q.BlockIDs, q.ChunkSize)
	}
	writeJSON(w, http.StatusOK, answer)
}

// digests are the MD5 of each chunk of blocks, over the layers in order.
func digests(layers []*view, ids []int, perChunk int) []string {
	var sums []string
	for chunk := range slices.Chunk(ids, perChunk) {
		sum := md5.New()
		for _, v := range layers {
			_, _ = sum.Write(v.gather(chunk))
		}
		sums = append(sums, hex.EncodeToString(sum.Sum(nil)))
	}
	return sums
}

// gather returns the values of blocks in the order of the tensor's axes, with
// bfloat16 widened to float32, as upstream hashes it.
func (v *view) gather(ids []int) []byte {
	var out []byte
	if v.planes == 2 && !v.planeFirst && v.planeStep < min(v.slotStep, v.headsStep) { // K and V side by side
		both := *v
		both.planes, both.run = 1, 2*v.run
		v = &both
	}
	appendBlock := func(plane, id int) {
		if v.slotStep < v.headsStep || v.heads == 1 { // axes: head, token; or a token in one piece
			for head := range v.heads {
				for slot := range v.slots {
					at := v.at(plane, id, slot, head)
					out = append(out, v.bytes[at:at+v.run]...)
				}
			}
			return
		}
		for slot := range v.slots {
			for head := range v.heads {
				at := v.at(plane, id, slot, head)
				out = append(out, v.bytes[at:at+v.run]...)
			}
		}
	}
	if v.planeFirst {
		for plane := range v.planes {
			for _, id := range ids {
				appendBlock(plane, id)
			}
		}
	} else {
		for _, id := range ids {
			for plane := range v.planes {
				appendBlock(plane, id)
			}
		}
	}
	if v.dtype == "bfloat16" {
		return widen(out)
	}
	return out
}

func widen(bfloat16 []byte) []byte {
	wide := make([]byte, 0, 2*len(bfloat16))
	for i := 0; i < len(bfloat16); i += 2 {
		wide = binary.LittleEndian.AppendUint32(wide, uint32(binary.LittleEndian.Uint16(bfloat16[i:]))<<16)
	}
	return wide
}

// ranges writes ids as upstream does: three and more consecutive ones as
// [first, last].
func ranges(ids []int) []any {
	var all []any
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if j-i >= 2 {
			all = append(all, []int{ids[i], ids[j]})
		} else {
			for _, id := range ids[i : j+1] {
				all = append(all, id)
			}
		}
		i = j + 1
	}
	return all
}
