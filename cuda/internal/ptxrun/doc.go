// Package ptxrun executes PTX text on the CPU, so that the very text that a
// driver would compile can be proven on machines without a GPU.
//
//	kernels, err := ptxrun.Parse(text)
//	steps, err := kernels["kvsum"].Run(ptxrun.Launch{
//		Grid: ptxrun.Dim{X: 3, Y: 4, Z: 1}, Block: ptxrun.Dim{X: 256, Y: 1, Z: 1},
//		Params: packed, Memory: ptxrun.Memory{{Addr: base, Bytes: pool}},
//	})
//
// It knows the subset that straight integer kernels need (43 forms in the text
// that ships; an unknown form is an error of Parse). It is strict where a device
// would be silent or would fault: operand widths are checked against the
// register declarations, registers and shared memory start as junk, addresses
// must be aligned and inside one region, a barrier must be reached by all
// threads, and two threads that touch the same shared byte between barriers,
// one of them writing, are an error.
//
// What it cannot show: the order of memory operations between thread blocks
// (they run one after another), coalescing, and time. It is hand-written because
// no other executor of PTX runs without a toolkit, a GPU or a long build.
package ptxrun
