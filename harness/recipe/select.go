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

// Select turns a -backend value into rows, in its order: "all" gives those of
// its rows that this build has and names the missing ones; a comma list must
// name rows that are built, each once.
func Select(backend string, stack Mini) (rows []row.Row, missing []string, err error) {
	if backend == "all" {
		for _, name := range all {
			if s, ok := specs[name]; ok {
				rows = append(rows, builtRow{spec: s, stack: stack})
			} else {
				missing = append(missing, name)
			}
		}
		return rows, missing, nil
	}
	right := "the rows are all, or a comma list of " + strings.Join(Names(), ", ")
	seen := make(map[string]bool)
	for _, name := range strings.Split(backend, ",") {
		name = strings.TrimSpace(name)
		s, built := specs[name]
		switch {
		case name == "all":
			return nil, nil, fmt.Errorf("all cannot be part of a list; %s", right)
		case aliases[name] != "":
			return nil, nil, fmt.Errorf("%s is an old spelling, write %s; %s", name, aliases[name], right)
		case !slices.Contains(Names(), name):
			return nil, nil, fmt.Errorf("unknown row %q; %s", name, right)
		case seen[name]:
			return nil, nil, fmt.Errorf("%s is listed twice; %s", name, right)
		case !built:
			return nil, nil, fmt.Errorf("row %s is not built in this version; built are %s", name, strings.Join(builtNames(), ", "))
		}
		seen[name] = true
		rows = append(rows, builtRow{spec: s, stack: stack})
	}
	return rows, nil, nil
}

func builtNames() []string {
	var names []string
	for _, name := range Names() {
		if _, ok := specs[name]; ok {
			names = append(names, name)
		}
	}
	return names
}

// Law is the hit law of a built row at block size b: what its engine reports
// as cached.
func Law(name string, b int) fixtures.Law { return specs[name].law(b) }
