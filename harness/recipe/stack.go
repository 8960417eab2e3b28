package recipe

import (
	"fmt"
	"slices"
	"strings"
)

// A Kind is how a service comes to be.
type Kind string

// The kinds.
const (
	InProcess Kind = "mini"    // in this process
	Process   Kind = "process" // a local executable
	Docker    Kind = "docker"  // a container
	Attach    Kind = "attach"  // somebody else started it
)

var kinds = []Kind{InProcess, Process, Docker, Attach}

// A Stack says for each service how it comes to be.
type Stack struct{ Engine, LMCache, DaseR Kind }

// ParseStack reads a -stack value: one kind for all services, or a list such as
// engine=process,lmcache=process. What a list leaves out comes to be like the
// engine.
func ParseStack(text string) (Stack, error) {
	if !strings.Contains(text, "=") {
		kind, err := parseKind(text)
		return Stack{kind, kind, kind}, err
	}
	var s Stack
	services := map[string]*Kind{"engine": &s.Engine, "lmcache": &s.LMCache, "daser": &s.DaseR}
	for part := range strings.SplitSeq(text, ",") {
		name, value, named := strings.Cut(strings.TrimSpace(part), "=")
		service, ok := services[name]
		switch {
		case !named:
			return Stack{}, fmt.Errorf("a list needs service=kind in each entry, e.g. engine=mini,lmcache=mini")
		case !ok:
			return Stack{}, fmt.Errorf("unknown service %q: the services are engine, lmcache, daser", name)
		case *service != "":
			return Stack{}, fmt.Errorf("%s is listed twice", name)
		}
		kind, err := parseKind(value)
		if err != nil {
			return Stack{}, err
		}
		*service = kind
	}
	if s.Engine == "" {
		s.Engine = InProcess
	}
	for _, other := range []*Kind{&s.LMCache, &s.DaseR} {
		if *other == "" {
			*other = s.Engine
		}
	}
	return s, nil
}

func parseKind(text string) (Kind, error) {
	if kind := Kind(text); slices.Contains(kinds, kind) {
		return kind, nil
	}
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = string(kind)
	}
	return "", fmt.Errorf("unknown stack %q: the stacks are %s", text, strings.Join(names, ", "))
}
