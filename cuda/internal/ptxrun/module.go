package ptxrun

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
)

// A Kernel is one .entry of a module.
type Kernel struct {
	Name       string
	Params     []int  // size in bytes of each parameter, in order
	MaxThreads uint32 // .maxntid; 0 if the text does not say

	code       []instruction
	registers  int      // slots of a thread's register file
	constants  []uint64 // operands below zero index this
	sharedSize uint64
	paramSize  uint64
	spare      sync.Pool // of *scratch
}

var (
	commentRE = regexp.MustCompile(`//[^\n]*`)
	// A body ends at a brace in the first column; those of vector operands are
	// never there.
	entryRE  = regexp.MustCompile(`(?s)\.visible\s+\.entry\s+(\w+)\((.*?)\)(.*?)\{(.*?)\n\}`)
	paramRE  = regexp.MustCompile(`\.param\s+\.[bus](8|16|32|64)\s+(?:\.ptr\s+(?:\.\w+\s+)*(?:\d+\s+)?)?(\w+)`)
	maxntRE  = regexp.MustCompile(`\.maxntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?`)
	headerRE = regexp.MustCompile(`(?m)^\.version\s+\d+\.\d+\s*$`)
)

// Parse reads all kernels of a module, by name.
func Parse(text string) (map[string]*Kernel, error) {
	text = commentRE.ReplaceAllString(text, "")
	if !headerRE.MatchString(text) {
		return nil, errors.New("parsing PTX: no .version line")
	}
	kernels := map[string]*Kernel{}
	for _, m := range entryRE.FindAllStringSubmatch(text, -1) {
		k := &Kernel{Name: m[1]}
		p := newParser(k)
		k.readParams(p, m[2])
		if bound := maxntRE.FindStringSubmatch(m[3]); bound != nil {
			k.MaxThreads = 1
			for _, n := range bound[1:] {
				if n != "" {
					k.MaxThreads *= uint32(integer(n))
				}
			}
		}
		if err := p.body(m[4]); err != nil {
			return nil, fmt.Errorf("parsing kernel %s: %w", k.Name, err)
		}
		kernels[k.Name] = k
	}
	if len(kernels) == 0 {
		return nil, errors.New("parsing PTX: no .visible .entry")
	}
	return kernels, nil
}

// readParams lays the parameters out as the driver does, naturally aligned.
func (k *Kernel) readParams(p *parser, list string) {
	for _, m := range paramRE.FindAllStringSubmatch(list, -1) {
		size := integer(m[1]) / 8
		k.paramSize = (k.paramSize + size - 1) / size * size
		p.params[m[2]] = k.paramSize
		k.paramSize += size
		k.Params = append(k.Params, int(size))
	}
}

// integer reads digits that a regular expression has matched.
func integer(digits string) uint64 {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0 // more digits than 64 bits hold; no such size is usable
	}
	return n
}
