package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Releases up to 0.5.5 describe a tensor by a pickle of their class. This file
// writes that one shape of pickle, byte for byte as Python's protocol 4 does,
// and reads it in protocols 2 and 4. Nothing but the two globals below is
// accepted, so a peer cannot make us run anything; a server of those releases
// unpickles whatever it is sent.
const (
	wrapperModule = "lmcache.v1.platform.cpu.shm"
	wrapperClass  = "CpuShmTensorWrapper"
)

// Opcodes, by the names of Python's pickletools.
const (
	opProto           = 0x80
	opFrame           = 0x95
	opMemoize         = 0x94
	opShortBinUnicode = 0x8c
	opBinUnicode      = 'X'
	opStackGlobal     = 0x93
	opGlobal          = 'c'
	opNewObj          = 0x81
	opEmptyTuple      = ')'
	opEmptyDict       = '}'
	opMark            = '('
	opTuple           = 't'
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opLong1           = 0x8a
	opNone            = 'N'
	opBinGet          = 'h'
	opBinPut          = 'q'
	opSetItems        = 'u'
	opBuild           = 'b'
	opStop            = '.'
)

// pickle writes the tensor as an instance of upstream's class.
func (t *Tensor) pickle() ([]byte, error) {
	if t.Kind != CPUShared {
		return nil, fmt.Errorf("a tensor in memory of kind %q cannot be described to a release before 0.5.6", t.Kind)
	}
	var p pickler
	p.text(wrapperModule)
	p.text(wrapperClass)
	p.memoized(opStackGlobal)
	p.memoized(opEmptyTuple, opNewObj)
	p.memoized(opEmptyDict)
	p.out = append(p.out, opMark)
	p.text("shm_name")
	p.text(t.Name)
	p.text("nbytes")
	p.integer(t.Bytes)
	p.text("handle")
	p.out = append(p.out, opNone)
	p.text("dtype")
	p.text("torch")
	p.text(t.DType)
	p.memoized(opStackGlobal)
	p.text("shape")
	p.tuple(t.Shape)
	p.text("stride")
	p.tuple(t.Stride)
	p.text("storage_offset")
	p.integer(t.Start)
	p.text("device_uuid")
	p.text(t.Device)
	p.out = append(p.out, opSetItems, opBuild, opStop)

	whole := binary.LittleEndian.AppendUint64([]byte{opProto, 4, opFrame}, uint64(len(p.out)))
	return append(whole, p.out...), nil
}

// A pickler remembers texts as Python's does, which writes one twice only
// where it is not the same object; those that occur twice here are not.
type pickler struct{ out []byte }

func (p *pickler) memoized(ops ...byte) { p.out = append(append(p.out, ops...), opMemoize) }

func (p *pickler) text(s string) {
	if len(s) < 256 {
		p.out = append(p.out, opShortBinUnicode, byte(len(s)))
	} else {
		p.out = binary.LittleEndian.AppendUint32(append(p.out, opBinUnicode), uint32(len(s)))
	}
	p.out = append(append(p.out, s...), opMemoize)
}

func (p *pickler) integer(n int) {
	switch {
	case n >= 0 && n < 1<<8:
		p.out = append(p.out, opBinInt1, byte(n))
	case n >= 0 && n < 1<<16:
		p.out = binary.LittleEndian.AppendUint16(append(p.out, opBinInt2), uint16(n))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		p.out = binary.LittleEndian.AppendUint32(append(p.out, opBinInt), uint32(int32(n)))
	default:
		bytes := binary.LittleEndian.AppendUint64(nil, uint64(n))
		for len(bytes) > 1 && bytes[len(bytes)-1] == 0 && bytes[len(bytes)-2] < 0x80 {
			bytes = bytes[:len(bytes)-1]
		}
		p.out = append(append(p.out, opLong1, byte(len(bytes))), bytes...)
	}
}

func (p *pickler) tuple(values []int) {
	short := map[int]byte{1: opTuple1, 2: opTuple2, 3: opTuple3}[len(values)]
	if len(values) == 0 {
		p.out = append(p.out, opEmptyTuple)
		return
	}
	if short == 0 {
		p.out = append(p.out, opMark)
	}
	for _, v := range values {
		p.integer(v)
	}
	if short == 0 {
		short = opTuple
	}
	p.memoized(short)
}
