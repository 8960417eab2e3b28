package cuda

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// A UUID identifies a device, or a MIG slice of one, across processes.
type UUID [16]byte

// String is lower-case 8-4-4-4-12 hexadecimal without a prefix, the form of
// torch and LMCache; NVML and nvidia-smi put "GPU-" before it.
func (u UUID) String() string {
	s := hex.EncodeToString(u[:])
	return strings.Join([]string{s[:8], s[8:12], s[12:16], s[16:20], s[20:]}, "-")
}

// Is says whether s names this device, with or without "GPU-" or "MIG-" and in
// either case.
func (u UUID) Is(s string) bool {
	s = strings.ToLower(s)
	for _, prefix := range []string{"gpu-", "mig-"} {
		s = strings.TrimPrefix(s, prefix)
	}
	return s == u.String()
}

// Info describes a device.
type Info struct {
	Ordinal         int
	Name            string
	UUID            UUID
	PCIAddress      string // domain:bus:device.function, as 0000:1A:00.0
	Memory          uint64 // bytes
	Major, Minor    int    // compute capability
	Multiprocessors int
	ClockKHz        int
	MemoryClockKHz  int // 0 where the driver does not tell
	MemoryBusBits   int
	L2Bytes         int
	CopyEngines     int  // 2 or more: both directions at once
	IPCEvents       bool // event handles work between processes
	NUMANode        int  // of the host, -1 if unknown
}

// Info reads what the driver knows about a device. It opens nothing.
func (d *Driver) Info(ordinal int) (Info, error) {
	info := Info{Ordinal: ordinal, NUMANode: -1}
	var device int32
	if err := d.check("cuDeviceGet", d.api.deviceGet(&device, int32(ordinal))); err != nil {
		return info, fmt.Errorf("finding device %d: %w", ordinal, err)
	}
	var name, pci [128]byte
	var memory uintptr
	for _, step := range []struct {
		call string
		code int32
	}{
		{"cuDeviceGetName", d.api.deviceName(&name[0], int32(len(name)), device)},
		{"cuDeviceGetUuid_v2", d.api.deviceUUID((*[16]byte)(&info.UUID), device)},
		{"cuDeviceGetPCIBusId", d.api.devicePCI(&pci[0], int32(len(pci)), device)},
		{"cuDeviceTotalMem_v2", d.api.deviceMemory(&memory, device)},
	} {
		if err := d.check(step.call, step.code); err != nil {
			return info, fmt.Errorf("describing device %d: %w", ordinal, err)
		}
	}
	info.Name, info.PCIAddress, info.Memory = text(&name[0]), text(&pci[0]), uint64(memory)

	// The numbers are CU_DEVICE_ATTRIBUTE_* of cuda.h. An attribute that a driver
	// does not know keeps the value it has.
	events := 0
	for attribute, to := range map[int32]*int{
		16: &info.Multiprocessors, 13: &info.ClockKHz, 36: &info.MemoryClockKHz, 37: &info.MemoryBusBits,
		38: &info.L2Bytes, 40: &info.CopyEngines, 75: &info.Major, 76: &info.Minor, 125: &events, 134: &info.NUMANode,
	} {
		var v int32
		if d.api.deviceAttr(&v, attribute, device) == 0 {
			*to = int(v)
		}
	}
	info.IPCEvents = events != 0
	return info, nil
}

// Find is the ordinal of the device with a UUID, in any form that UUID.Is takes.
func (d *Driver) Find(uuid string) (int, error) {
	n, err := d.Count()
	if err != nil {
		return 0, err
	}
	var seen []string
	for i := range n {
		info, err := d.Info(i)
		if err != nil {
			return 0, err
		}
		if info.UUID.Is(uuid) {
			return i, nil
		}
		seen = append(seen, info.UUID.String())
	}
	return 0, fmt.Errorf("finding device %s: visible are %s", uuid, strings.Join(seen, ", "))
}
