package gpu

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Facts are what is worth knowing about a GPU beside figures that were measured
// on it. What it does not tell is absent.
type Facts struct {
	Index  string `json:"index"`
	UUID   string `json:"uuid,omitempty"`
	BusID  string `json:"pci_bus_id,omitempty"`
	Name   string `json:"name,omitempty"`
	Driver string `json:"driver,omitempty"`

	MemoryTotal *int64 `json:"memory_total_mib,omitempty"`
	MemoryUsed  *int64 `json:"memory_used_mib,omitempty"`

	SMClock        *int64 `json:"sm_clock_mhz,omitempty"` // now; an idle GPU clocks down
	SMClockMax     *int64 `json:"sm_clock_max_mhz,omitempty"`
	MemoryClock    *int64 `json:"memory_clock_mhz,omitempty"`
	MemoryClockMax *int64 `json:"memory_clock_max_mhz,omitempty"`
	Temperature    *int64 `json:"temperature_c,omitempty"`

	PCIeGen      *int64 `json:"pcie_gen,omitempty"` // now; an idle link may slow down
	PCIeGenMax   *int64 `json:"pcie_gen_max,omitempty"`
	PCIeWidth    *int64 `json:"pcie_width,omitempty"`
	PCIeWidthMax *int64 `json:"pcie_width_max,omitempty"`

	Reasons   []string         `json:"clock_reasons"`          // that hold the clocks down now; null: not told
	Throttled map[string]int64 `json:"throttled_us,omitempty"` // time spent so since the driver was loaded, by reason
}

// Names of reasons in the mask of the driver (nvml.h, nvmlClocksEventReasons).
var reasons = []struct {
	bit      uint64
	name     string
	harmless bool // as everybody wants it
}{
	{0x1, "gpu_idle", true},
	{0x2, "applications_clocks_setting", true},
	{0x4, "sw_power_cap", false},
	{0x8, "hw_slowdown", false},
	{0x10, "sync_boost", false},
	{0x20, "sw_thermal_slowdown", false},
	{0x40, "hw_thermal_slowdown", false},
	{0x80, "hw_power_brake_slowdown", false},
	{0x100, "display_clock_setting", true},
}

// counters are those of the reasons, on drivers that have them (seen on 595, and
// not on 580).
var counters = []string{"sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}

const counterPrefix = "clocks_event_reasons_counters."

// Read asks for the facts of the GPUs of these ids; of all without any.
func Read(ctx context.Context, ids []string) ([]Facts, error) {
	gpus, err := query(ctx, "index", "uuid", "pci.bus_id", "name", "driver_version", "memory.total", "memory.used",
		"clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem", "temperature.gpu",
		"pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max")
	if err != nil {
		return nil, err
	}
	// A field that this version does not know fails the whole query.
	masks := optional(ctx, "clocks_event_reasons.active")
	if masks == nil { // its name before driver 535
		masks = optional(ctx, "clocks_throttle_reasons.active")
	}
	var names []string
	for _, c := range counters {
		names = append(names, counterPrefix+c)
	}
	counts := optional(ctx, names...)
	var all []Facts
	for _, g := range gpus {
		if !chosen(ids, g["index"], g["uuid"]) {
			continue
		}
		f := Facts{
			Index: g["index"], UUID: g["uuid"], BusID: g["pci.bus_id"], Name: g["name"], Driver: g["driver_version"],
			MemoryTotal: number(g, "memory.total"), MemoryUsed: number(g, "memory.used"),
			SMClock: number(g, "clocks.sm"), SMClockMax: number(g, "clocks.max.sm"),
			MemoryClock: number(g, "clocks.mem"), MemoryClockMax: number(g, "clocks.max.mem"), Temperature: number(g, "temperature.gpu"),
			PCIeGen: number(g, "pcie.link.gen.current"), PCIeGenMax: number(g, "pcie.link.gen.max"),
			PCIeWidth: number(g, "pcie.link.width.current"), PCIeWidthMax: number(g, "pcie.link.width.max"),
		}
		for _, mask := range masks[f.UUID] {
			f.Reasons = reasonNames(mask)
		}
		for name := range counts[f.UUID] {
			if us := number(counts[f.UUID], name); us != nil {
				if f.Throttled == nil {
					f.Throttled = make(map[string]int64)
				}
				f.Throttled[strings.TrimPrefix(name, counterPrefix)] = *us
			}
		}
		all = append(all, f)
	}
	return all, nil
}

// optional asks for fields that not every version has, by UUID; nil: it has not.
func optional(ctx context.Context, fields ...string) map[string]map[string]string {
	gpus, err := query(ctx, append([]string{"uuid"}, fields...)...)
	if err != nil {
		return nil
	}
	byUUID := make(map[string]map[string]string)
	for _, g := range gpus {
		uuid := g["uuid"]
		delete(g, "uuid")
		byUUID[uuid] = g
	}
	return byUUID
}

// reasonNames are the names of the bits of a mask; nil: it is none.
func reasonNames(mask string) []string {
	bits, err := strconv.ParseUint(mask, 0, 64)
	if err != nil {
		return nil
	}
	names := []string{}
	for _, r := range reasons {
		if bits&r.bit != 0 {
			names = append(names, r.name)
		}
	}
	return names
}

// Throttling says in what ways GPUs were held down between two readings of theirs,
// a sentence for each reason: by the driver's counters, or where it has none, by
// reasons that are active after and were not before.
func Throttling(before, after []Facts) (sentences []string) {
	for _, a := range after {
		i := slices.IndexFunc(before, func(b Facts) bool { return b.UUID == a.UUID })
		if i < 0 {
			continue
		}
		for _, reason := range slices.Sorted(maps.Keys(a.Throttled)) {
			was, counted := before[i].Throttled[reason]
			if us := a.Throttled[reason] - was; counted && us > 0 {
				sentences = append(sentences, fmt.Sprintf("GPU %s (%s) was throttled for %.3g s by %s", a.Index, a.Name, float64(us)/1e6, reason))
			}
		}
		for _, r := range reasons {
			if _, counted := a.Throttled[r.name]; counted || r.harmless || !slices.Contains(a.Reasons, r.name) || slices.Contains(before[i].Reasons, r.name) {
				continue
			}
			sentences = append(sentences, fmt.Sprintf("GPU %s (%s) is throttled by %s, and was not before", a.Index, a.Name, r.name))
		}
	}
	return sentences
}
