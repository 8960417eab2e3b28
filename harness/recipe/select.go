// Package recipe says what each row is made of: its features, its hit law, the
// counters that are its witnesses, how its cache is emptied and when its
// stores can be read. A recipe works on endpoints, whoever started them; what
// starts them here is the miniature stack.
//
//	rows, missing, err := recipe.Select("baseline,lmcache", recipe.Mini{Model: "mini"})
//	server, err := rows[1].Start(ctx, row.Env{BlockSize: 128, Concurrency: 2})
package recipe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvproof/kvproof/fixtures"
	"github.com/kvproof/kvproof/harness/row"
)

// all are the rows of -backend=all, in their order.
var all = []string{"baseline", "lmcache", "daser-chunk", "daser-prefix"}

// beyond are the rows that only a list selects.
var beyond = []string{"engine-cache", "engine-files"}

// Names lists every row that exists by design, built or not.
func Names() []string { return append(slices.Clone(all), beyond...) }

// aliases are spellings of other tools, with what to write instead.
var aliases = map[string]string{
	"vllm":       "baseline",
	"daser":      "daser-prefix or daser-chunk",
	"all-openai": "baseline,lmcache,daser-prefix",
}

// A Builder makes rows for one way in which their services come to be.
type Builder interface {
	names() []string                    // of the rows that it has, in the order of Names
	build(name string) (row.Row, error) // one of them
}

// Select turns a -backend value into rows, in its order: "all" gives those of
// its rows that the builder has and names the missing ones; a comma list must
// name rows that it has, each once.
func Select(backend string, builder Builder) (rows []row.Row, missing []string, err error) {
	built := builder.names()
	if backend == "all" {
		for _, name := range all {
			if !slices.Contains(built, name) {
				missing = append(missing, name)
				continue
			}
			r, err := builder.build(name)
			if err != nil {
				return nil, nil, err
			}
			rows = append(rows, r)
		}
		return rows, missing, nil
	}
	right := "the rows are all, or a comma list of " + strings.Join(Names(), ", ")
	seen := make(map[string]bool)
	for _, name := range strings.Split(backend, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "all":
			return nil, nil, fmt.Errorf("all cannot be part of a list; %s", right)
		case aliases[name] != "":
			return nil, nil, fmt.Errorf("%s is an old spelling, write %s; %s", name, aliases[name], right)
		case !slices.Contains(Names(), name):
			return nil, nil, fmt.Errorf("unknown row %q; %s", name, right)
		case seen[name]:
			return nil, nil, fmt.Errorf("%s is listed twice; %s", name, right)
		case !slices.Contains(built, name):
			return nil, nil, fmt.Errorf("row %s is not built for this stack; built are %s", name, strings.Join(built, ", "))
		}
		seen[name] = true
		r, err := builder.build(name)
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil, nil
}

func builtNames() []string { return Mini{}.names() }

// Exact says that the engine of a row computes the same bits from the same
// inputs, whatever the batch: any difference is a fault.
func Exact(r row.Row) bool {
	switch r := r.(type) {
	case deployedRow:
		return r.exact
	case remoteRow:
		return false
	}
	return true
}

// Law is the hit law of a built row at block size b: what its engine reports
// as cached.
func Law(name string, b int) fixtures.Law { return specs[name].law(b) }
