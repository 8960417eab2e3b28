// Package standin is a stand-in for NVIDIA's driver library, for tests of what
// uses a GPU on machines that have none: package cuda, and the round trip of KV
// through a cache server in another process.
//
//	library, err := standin.Build(dir) // a libcuda.so.1, compiled from C by cc
//	driver, err := standin.Connect(library)
//	d, err := cuda.LoadLibrary(library)
//
// It is strict about contexts, handles, ranges and options, and lazy about
// streams: what was enqueued runs only when somebody waits for it, so that a
// missing wait is a wrong result every time. "Device" memory is anonymous shared
// memory, so that handles of memory and events work between processes of one
// user. A kernel launch executes the PTX text that the module was loaded from;
// no result is faked. It says nothing about speed.
package standin
