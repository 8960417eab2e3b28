package cuda

import (
	"fmt"
	"reflect"
	"strings"
	"structs"
	"unsafe"

	"github.com/ebitengine/purego"
)

// IPCHandle is a CUipcMemHandle or a CUipcEventHandle. C passes it by value.
type IPCHandle struct {
	_    structs.HostLayout
	Data [64]byte
}

// symbols is the driver, one field per function. The tag is the exported,
// versioned name: cuda.h maps the plain names to these, and a plain name that
// still resolves is an old variant with 32-bit sizes. The symbols are those of
// cuda.h of CUDA 13.5; cuEventElapsedTime stays plain, since older drivers lack
// its _v2.
type symbols struct {
	init           func(flags uint32) int32                                                                             `cu:"cuInit"`
	driverVersion  func(v *int32) int32                                                                                 `cu:"cuDriverGetVersion"`
	errorName      func(code int32, s **byte) int32                                                                     `cu:"cuGetErrorName"`
	errorString    func(code int32, s **byte) int32                                                                     `cu:"cuGetErrorString"`
	deviceCount    func(n *int32) int32                                                                                 `cu:"cuDeviceGetCount"`
	deviceGet      func(d *int32, ordinal int32) int32                                                                  `cu:"cuDeviceGet"`
	deviceName     func(b *byte, n, d int32) int32                                                                      `cu:"cuDeviceGetName"`
	deviceUUID     func(u *[16]byte, d int32) int32                                                                     `cu:"cuDeviceGetUuid_v2"`
	devicePCI      func(b *byte, n, d int32) int32                                                                      `cu:"cuDeviceGetPCIBusId"`
	deviceAttr     func(v *int32, attribute, d int32) int32                                                             `cu:"cuDeviceGetAttribute"`
	deviceMemory   func(n *uintptr, d int32) int32                                                                      `cu:"cuDeviceTotalMem_v2"`
	contextRetain  func(c *uintptr, d int32) int32                                                                      `cu:"cuDevicePrimaryCtxRetain"`
	contextRelease func(d int32) int32                                                                                  `cu:"cuDevicePrimaryCtxRelease_v2"`
	contextSet     func(c uintptr) int32                                                                                `cu:"cuCtxSetCurrent"`
	contextSync    func() int32                                                                                         `cu:"cuCtxSynchronize"`
	memAlloc       func(p *Ptr, n uintptr) int32                                                                        `cu:"cuMemAlloc_v2"`
	memFree        func(p Ptr) int32                                                                                    `cu:"cuMemFree_v2"`
	memInfo        func(free, total *uintptr) int32                                                                     `cu:"cuMemGetInfo_v2"`
	memRange       func(base *Ptr, n *uintptr, p Ptr) int32                                                             `cu:"cuMemGetAddressRange_v2"`
	hostAlloc      func(p *unsafe.Pointer, n uintptr, flags uint32) int32                                               `cu:"cuMemHostAlloc"`
	hostFree       func(p unsafe.Pointer) int32                                                                         `cu:"cuMemFreeHost"`
	hostRegister   func(p unsafe.Pointer, n uintptr, flags uint32) int32                                                `cu:"cuMemHostRegister_v2"`
	hostUnregister func(p unsafe.Pointer) int32                                                                         `cu:"cuMemHostUnregister"`
	hostPointer    func(d *Ptr, p unsafe.Pointer, flags uint32) int32                                                   `cu:"cuMemHostGetDevicePointer_v2"`
	htod           func(d Ptr, h unsafe.Pointer, n uintptr) int32                                                       `cu:"cuMemcpyHtoD_v2"`
	dtoh           func(h unsafe.Pointer, d Ptr, n uintptr) int32                                                       `cu:"cuMemcpyDtoH_v2"`
	dtod           func(to, from Ptr, n uintptr) int32                                                                  `cu:"cuMemcpyDtoD_v2"`
	htodAsync      func(d Ptr, h unsafe.Pointer, n uintptr, s Stream) int32                                             `cu:"cuMemcpyHtoDAsync_v2"`
	dtohAsync      func(h unsafe.Pointer, d Ptr, n uintptr, s Stream) int32                                             `cu:"cuMemcpyDtoHAsync_v2"`
	dtodAsync      func(to, from Ptr, n uintptr, s Stream) int32                                                        `cu:"cuMemcpyDtoDAsync_v2"`
	setAsync       func(d Ptr, v uint8, n uintptr, s Stream) int32                                                      `cu:"cuMemsetD8Async"`
	moduleLoad     func(m *uintptr, image *byte, n uint32, options *int32, values *uintptr) int32                       `cu:"cuModuleLoadDataEx"`
	moduleUnload   func(m uintptr) int32                                                                                `cu:"cuModuleUnload"`
	moduleFunction func(f *uintptr, m uintptr, name *byte) int32                                                        `cu:"cuModuleGetFunction"`
	launch         func(f uintptr, gx, gy, gz, bx, by, bz, shared uint32, s Stream, params, extra unsafe.Pointer) int32 `cu:"cuLaunchKernel"`
	streamCreate   func(s *Stream, flags uint32) int32                                                                  `cu:"cuStreamCreate"`
	streamSync     func(s Stream) int32                                                                                 `cu:"cuStreamSynchronize"`
	streamWait     func(s Stream, e Event, flags uint32) int32                                                          `cu:"cuStreamWaitEvent"`
	streamDestroy  func(s Stream) int32                                                                                 `cu:"cuStreamDestroy_v2"`
	streamValue    func(s Stream, at Ptr, value, flags uint32) int32                                                    `cu:"cuStreamWaitValue32_v2,optional"`
	eventCreate    func(e *Event, flags uint32) int32                                                                   `cu:"cuEventCreate"`
	eventRecord    func(e Event, s Stream) int32                                                                        `cu:"cuEventRecord"`
	eventSync      func(e Event) int32                                                                                  `cu:"cuEventSynchronize"`
	eventElapsed   func(ms *float32, a, b Event) int32                                                                  `cu:"cuEventElapsedTime"`
	eventDestroy   func(e Event) int32                                                                                  `cu:"cuEventDestroy_v2"`
	ipcGetMemory   func(h *IPCHandle, p Ptr) int32                                                                      `cu:"cuIpcGetMemHandle"`
	ipcOpenMemory  func(p *Ptr, h IPCHandle, flags uint32) int32                                                        `cu:"cuIpcOpenMemHandle_v2"`
	ipcCloseMemory func(p Ptr) int32                                                                                    `cu:"cuIpcCloseMemHandle"`
	ipcGetEvent    func(h *IPCHandle, e Event) int32                                                                    `cu:"cuIpcGetEventHandle"`
	ipcOpenEvent   func(e *Event, h IPCHandle) int32                                                                    `cu:"cuIpcOpenEventHandle"`
}

// bind resolves every symbol before the first call, so that an old driver is one
// error that names the symbol; purego itself would panic half way. A function
// whose symbol is optional and missing stays nil.
func (s *symbols) bind(library uintptr) error {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("cu"), ",")
		address, err := purego.Dlsym(library, name)
		if err != nil {
			if option == "optional" {
				continue
			}
			return fmt.Errorf("%w: the library has no %s: %v", ErrNoDriver, name, err)
		}
		field := reflect.NewAt(v.Field(i).Type(), unsafe.Pointer(v.Field(i).UnsafeAddr()))
		purego.RegisterFunc(field.Interface(), address)
	}
	return nil
}

// text copies a C string.
func text(p *byte) string {
	var n uintptr
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
