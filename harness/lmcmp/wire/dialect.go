package wire

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Dialect is how a range of releases speaks: the cuts between releases do
// not coincide, so each property is a field of its own. A dialect is data and
// is not changed after it was made.
type Dialect struct {
	Version string // release, such as 0.5.6
	Newer   bool   // the server is newer than the releases that are known here

	ids          map[Op]int
	ByName       bool // operations may be named instead of numbered
	PickledShape bool // descriptors of tensors are pickles, not msgpack maps
	KeyFields    int  // fields of a key that upstream's client sends
	ClearForce   bool // clear has a payload: whether to ignore locks
	Wait         bool // wait_prefetch_status exists
	BarePing     bool // ping has no payload
	HintHonoured bool // a CPU server reads tensors in the layout of the hint (0.5.4 and older read HND)
	Routes       Routes
}

// Routes are the HTTP paths of a release.
type Routes struct {
	Config    string // GET: the server's configuration
	Clear     string // POST: empties L1
	Checksums string // POST, where it takes a body; GET with a query up to 0.5.0
	Query     bool   // Checksums is the older GET
}

// The numbers of operations moved three times. Source: running servers of
// 0.4.7 (A), 0.5.2 (B), 0.5.4 and 0.5.5 (C) and 0.5.6 (D); of the other
// releases, their packages.
var (
	idsA = map[Op]int{
		OpRegisterKVCache: 1, OpUnregisterKVCache: 2, OpStore: 3, OpRetrieve: 4, OpLookup: 5, OpQueryPrefetchStatus: 6,
		OpQueryLookupHits: 7, OpFreeLookupLocks: 8, OpEndSession: 9, OpRegisterEngineDriven: 10, OpUnregisterEngine: 11,
		OpPrepareStore: 12, OpCommitStore: 13, OpPrepareRetrieve: 14, OpCommitRetrieve: 15,
		OpClear: 16, OpGetChunkSize: 17, OpPing: 18, OpReportBlockAllocation: 19, OpNoop: 20,
	}
	idsB = map[Op]int{
		OpRegisterKVCache: 1, OpUnregisterKVCache: 2, OpStore: 3, OpRetrieve: 4, OpLookup: 5, OpQueryPrefetchStatus: 6,
		OpWaitPrefetchStatus: 7, OpQueryLookupHits: 8, OpFreeLookupLocks: 9, OpEndSession: 10, OpRegisterEngineDriven: 11, OpUnregisterEngine: 12,
		OpPrepareStore: 13, OpCommitStore: 14, OpPrepareRetrieve: 15, OpCommitRetrieve: 16,
		OpClear: 17, OpGetChunkSize: 18, OpPing: 19, OpReportBlockAllocation: 20, OpNoop: 21,
	}
	idsC = map[Op]int{
		OpRegisterKVCache: 1, OpUnregisterKVCache: 2, OpStore: 6, OpRetrieve: 7, OpLookup: 8, OpQueryPrefetchStatus: 9,
		OpWaitPrefetchStatus: 10, OpQueryLookupHits: 11, OpFreeLookupLocks: 12, OpEndSession: 13, OpRegisterEngineDriven: 14, OpUnregisterEngine: 15,
		OpPrepareStore: 16, OpCommitStore: 17, OpPrepareRetrieve: 18, OpCommitRetrieve: 19,
		OpClear: 20, OpGetChunkSize: 21, OpPing: 22, OpReportBlockAllocation: 23, OpNoop: 24,
	}
	idsD = idsOf0506()
)

// idsOf0506 are those of 0.5.6, which keeps the numbers that it found for
// clients that do not name operations: one was retired, one moved.
func idsOf0506() map[Op]int {
	ids := maps.Clone(idsC)
	delete(ids, OpQueryLookupHits)
	ids[OpGetExperimental] = 32
	return ids
}

var (
	oldRoutes = Routes{Config: "/conf", Clear: "/clear-cache", Checksums: "/kvcache/check", Query: true}
	newRoutes = Routes{Config: "/config", Clear: "/cache/clear", Checksums: "/cache/checksums"}
)

// dialects are the releases that are known, oldest first.
var dialects = []Dialect{
	{Version: "0.4.7", ids: idsA, PickledShape: true, KeyFields: 8, BarePing: true, Routes: oldRoutes},
	{Version: "0.5.0", ids: idsB, PickledShape: true, KeyFields: 8, Wait: true, Routes: oldRoutes},
	{Version: "0.5.1", ids: idsB, PickledShape: true, KeyFields: 8, Wait: true, Routes: newRoutes},
	{Version: "0.5.2", ids: idsB, PickledShape: true, KeyFields: 8, Wait: true, Routes: newRoutes},
	{Version: "0.5.3", ids: idsC, PickledShape: true, KeyFields: 10, Wait: true, Routes: newRoutes},
	{Version: "0.5.4", ids: idsC, PickledShape: true, KeyFields: 10, Wait: true, Routes: newRoutes},
	{Version: "0.5.5", ids: idsC, PickledShape: true, KeyFields: 10, Wait: true, HintHonoured: true, Routes: newRoutes},
	{
		Version: "0.5.6", ids: idsD, ByName: true, KeyFields: 10, ClearForce: true, Wait: true, HintHonoured: true,
		Routes: newRoutes,
	},
}

// Versions are the releases whose dialects are known, oldest first.
func Versions() []string {
	versions := make([]string, len(dialects))
	for i, d := range dialects {
		versions[i] = d.Version
	}
	return versions
}

// Newest is the dialect of the newest release that is known.
func Newest() *Dialect { return &dialects[len(dialects)-1] }

// ForVersion is the dialect of a server that reports this version, such as
// 0.5.6-g3e11e108. A release newer than all known ones gets the newest dialect
// with operations by name, which do not move, and is marked Newer. Releases
// that are older, or unknown in between, are an error that lists what is known.
func ForVersion(version string) (*Dialect, error) {
	release, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	wanted, err := parseRelease(release)
	if err != nil {
		return nil, fmt.Errorf("LMCache version %q: %w; known are %s", version, err, strings.Join(Versions(), ", "))
	}
	for i := range dialects {
		known, err := parseRelease(dialects[i].Version)
		if err != nil {
			return nil, err
		}
		if slices.Equal(wanted, known) {
			return &dialects[i], nil
		}
	}
	newest, err := parseRelease(Newest().Version)
	if err != nil {
		return nil, err
	}
	if slices.Compare(wanted, newest) > 0 {
		d := *Newest()
		d.Version, d.Newer = release, true
		return &d, nil
	}
	return nil, fmt.Errorf("LMCache version %q is not known: numbers of operations differ between releases and one of another release can empty a cache; known are %s", version, strings.Join(Versions(), ", "))
}

// parseRelease splits 0.5.6rc2 into its numbers; what follows them is dropped.
func parseRelease(release string) ([]int, error) {
	parts := strings.SplitN(release, ".", 4)
	if len(parts) < 3 {
		return nil, fmt.Errorf("want three numbers")
	}
	var numbers []int
	for _, part := range parts[:3] {
		digits := part
		if i := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
			digits = part[:i]
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return nil, fmt.Errorf("want three numbers")
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// Has says whether the release has that operation.
func (d *Dialect) Has(op Op) bool {
	_, known := d.ids[op]
	return known || d.Newer
}

// encodeOp is the frame that names op: a newer release than those known is
// spoken to by name, because there numbers may have moved again.
func (d *Dialect) encodeOp(op Op) ([]byte, error) {
	id, known := d.ids[op]
	switch {
	case d.Newer:
		return Encode(string(op))
	case known:
		return Encode(id)
	}
	return nil, fmt.Errorf("LMCache %s has no operation %s", d.Version, op)
}

// decodeOp reads the frame that names an operation.
func (d *Dialect) decodeOp(frame []byte) (Op, error) {
	var id int
	if err := Decode(frame, &id); err == nil {
		for op, n := range d.ids {
			if n == id {
				return op, nil
			}
		}
		return "", fmt.Errorf("LMCache %s has no operation %d", d.Version, id)
	}
	var name string
	if err := Decode(frame, &name); err != nil {
		return "", fmt.Errorf("decoding the operation: neither a number nor a name: %w", err)
	}
	if _, known := d.ids[Op(name)]; !known || !d.ByName {
		return "", fmt.Errorf("LMCache %s has no operation %q", d.Version, name)
	}
	return Op(name), nil
}
