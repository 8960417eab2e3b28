// Package gpu is what nvidia-smi says about the GPUs of this machine: which one a
// run takes, what it is like, and who holds its memory. nvidia-smi is asked and not
// the driver, because it comes with every driver, sees what CUDA_VISIBLE_DEVICES
// hides, and costs this process no context on the GPU.
//
//	choice, err := gpu.Choose(ctx, "auto")   // once in a run
//	facts, err := gpu.Read(ctx, choice.IDs)  // errors.Is(err, gpu.ErrNone): there is nothing to ask
//
// Its numbers of GPUs are in the order of their PCI bus ids, as are those of a
// container engine, and those of CUDA under CUDA_DEVICE_ORDER=PCI_BUS_ID.
package gpu

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNone says that nothing can be asked about GPUs, as on a machine without any.
var ErrNone = errors.New("nvidia-smi, which comes with NVIDIA's driver, is not on the PATH")

// askTimeout bounds one call: a driver in trouble leaves nvidia-smi hanging.
const askTimeout = 15 * time.Second

// ask runs nvidia-smi and returns the records of its answer, with each field
// trimmed.
func ask(ctx context.Context, args ...string) ([][]string, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, ErrNone
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append(args, "--format=csv,noheader,nounits")...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	reader := csv.NewReader(bytes.NewReader(out))
	reader.LazyQuotes, reader.TrimLeadingSpace, reader.FieldsPerRecord = true, true, -1
	records, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading what nvidia-smi %s says: %w", strings.Join(args, " "), err)
	}
	return records, nil
}

// query asks for fields of all GPUs: each GPU by the names of its fields. What the
// GPU does not have is left out.
func query(ctx context.Context, fields ...string) ([]map[string]string, error) {
	records, err := ask(ctx, "--query-gpu="+strings.Join(fields, ","))
	if err != nil {
		return nil, err
	}
	var gpus []map[string]string
	for _, record := range records {
		if len(record) != len(fields) {
			return nil, fmt.Errorf("nvidia-smi answers %q when asked for %s", strings.Join(record, ", "), strings.Join(fields, ", "))
		}
		values := make(map[string]string)
		for i, field := range fields {
			if value := strings.TrimSpace(record[i]); !strings.HasPrefix(value, "[") && value != "N/A" && value != "" {
				values[field] = value // the others are [N/A], [Not Supported], [Unknown Error]
			}
		}
		gpus = append(gpus, values)
	}
	return gpus, nil
}

// number is a field as a number; nil: the GPU does not have it.
func number(values map[string]string, field string) *int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(values[field], " us"), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// Memory is that of one GPU, in MiB.
type Memory struct {
	Index             string // in the order of PCI bus ids
	UUID              string
	Total, Used, Free int64
	Known             bool // some GPUs share the memory of their host, and say nothing
}

// Memories reads the memory of all GPUs.
func Memories(ctx context.Context) ([]Memory, error) {
	gpus, err := query(ctx, "index", "uuid", "memory.total", "memory.used", "memory.free")
	if err != nil {
		return nil, err
	}
	var memories []Memory
	for _, g := range gpus {
		m := Memory{Index: g["index"], UUID: g["uuid"]}
		total, used, free := number(g, "memory.total"), number(g, "memory.used"), number(g, "memory.free")
		if total != nil && used != nil && free != nil {
			m.Total, m.Used, m.Free, m.Known = *total, *used, *free, true
		}
		memories = append(memories, m)
	}
	return memories, nil
}

// chosen says whether a GPU is among those of these ids. A UUID may be cut short,
// as for CUDA.
func chosen(ids []string, index, uuid string) bool {
	return len(ids) == 0 || slices.ContainsFunc(ids, func(id string) bool { return isGPU(id, index, uuid) })
}

func isGPU(id, index, uuid string) bool {
	return id == index || len(id) > len("GPU-") && strings.HasPrefix(uuid, id)
}

// A process is one that computes on a GPU.
type process struct {
	PID, Name string
	MiB       string // as nvidia-smi says it
}

func (p process) String() string {
	return fmt.Sprintf("process %s (%s) with %s MiB", p.PID, p.Name, p.MiB)
}

// processesOn are those on the GPUs of these ids; of all without any. Those of other
// PID namespaces than this one may be missing.
func processesOn(ctx context.Context, ids []string) ([]process, error) {
	memories, err := Memories(ctx)
	if err != nil {
		return nil, err
	}
	records, err := ask(ctx, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory")
	if err != nil {
		return nil, err
	}
	var processes []process
	for _, r := range records {
		if len(r) != 4 {
			continue // "No running processes found", on some versions
		}
		if slices.ContainsFunc(memories, func(m Memory) bool { return m.UUID == r[0] && chosen(ids, m.Index, m.UUID) }) {
			processes = append(processes, process{PID: strings.TrimSpace(r[1]), Name: strings.TrimSpace(r[2]), MiB: strings.TrimSpace(r[3])})
		}
	}
	return processes, nil
}
