package metric

import (
	"regexp"
	"strings"
)

var (
	foreign    = regexp.MustCompile(`[^a-z0-9._-]+`)
	likeGOMAXP = regexp.MustCompile(`-([0-9]+)$`)
)

// Slug makes a value for a key of a benchmark name, such as backend=…: letters
// are lower-cased, each run of characters outside [a-z0-9._-] becomes one
// underscore, and a final "-8" becomes "_8", because Go and benchstat read it
// as GOMAXPROCS. A slash would start a new level of the name.
//
//	Qwen/Qwen3-8B → qwen_qwen3-8b        llama-3 → llama_3
//
// Names in [a-z0-9.-], as all built-in ones are, keep apart from each other.
// Others can meet ("A" and "a"): who takes names from users compares slugs for
// duplicates. The empty name becomes "_".
func Slug(name string) string {
	s := foreign.ReplaceAllString(strings.ToLower(name), "_")
	s = likeGOMAXP.ReplaceAllString(s, "_$1")
	if s == "" {
		return "_"
	}
	return s
}
