package recipe

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kvproof/kvproof/harness/host"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/tiny"
)

// variables are what ${name} stands for in a file: values of the run, and the
// ports of the services as ${service.port} and ${service.port.name}. Within a
// service its own ports need no prefix.
type variables struct {
	values  map[string]string
	service string // whose own ports are meant; empty: nobody's
}

var reference = regexp.MustCompile(`\$\{([^}]*)\}`)

// expand replaces the references in text. An unknown one is an error that lists
// those that there are.
func (v variables) expand(text string) (string, error) {
	var errs []error
	out := reference.ReplaceAllStringFunc(text, func(match string) string {
		name := match[2 : len(match)-1]
		if value, ok := v.values[v.service+"."+name]; ok {
			return value
		}
		value, ok := v.values[name]
		if !ok {
			errs = append(errs, fmt.Errorf("%s in %q is unknown; there are %s", match, text, strings.Join(slices.Sorted(maps.Keys(v.values)), ", ")))
		}
		return value
	})
	return out, errors.Join(errs...)
}

// port makes a port known; the first one of a service is also its plain port.
func (v variables) port(service, name string, port int, first bool) {
	v.values[service+".port."+name] = strconv.Itoa(port)
	if first {
		v.values[service+".port"] = strconv.Itoa(port)
	}
}

// of are the variables as a service sees them.
func (v variables) of(service string) variables { return variables{values: v.values, service: service} }

// ports are those of the service.
func (v variables) ports() (ports []int) {
	for name, value := range v.values {
		if strings.HasPrefix(name, v.service+".port.") {
			if port, err := strconv.Atoi(value); err == nil {
				ports = append(ports, port)
			}
		}
	}
	return ports
}

const gibibyte = 1 << 30

// cacheGiB is what a cache must hold, in whole GiB.
func cacheGiB(env row.Env) int64 { return max(1, (env.CacheBytes+gibibyte-1)/gibibyte) }

// variables are those of a run that are known before ports are.
func (r deployedRow) variables(env row.Env, dir string) (variables, error) {
	cache, err := host.CacheDir()
	if err != nil {
		return variables{}, err
	}
	m := r.deployment.Model
	context := env.Context
	if context == 0 {
		context = m.Context
	}
	strict := "0"
	if r.deployment.Strict {
		strict = "1"
	}
	values := map[string]string{
		"strict":      strict,
		"cache":       cache,
		"assets":      dir + "/assets",
		"dir":         dir,
		"daser":       r.deployment.DaseR,
		"model":       m.Dir,
		"model.name":  m.Name,
		"model.gguf":  tiny.GGUF(m.Dir),
		"blocksize":   strconv.Itoa(env.BlockSize),
		"concurrency": strconv.Itoa(env.Concurrency),
		"context":     strconv.Itoa(context),
		"kv.gib":      strconv.FormatInt(cacheGiB(env), 10),
		"shm":         poolName(dir),
	}
	return variables{values: values}, nil
}

// transferConfig makes ${kv-transfer-config} known, as the JSON of the table
// with its own references replaced. A string that is one reference to a number
// becomes that number: engines want ports as numbers.
func (v variables) transferConfig(table map[string]any) error {
	if len(table) == 0 {
		return nil
	}
	expanded, err := v.expandValue(table)
	if err != nil {
		return fmt.Errorf("kv-transfer-config: %w", err)
	}
	text, err := json.Marshal(expanded)
	if err != nil {
		return fmt.Errorf("encoding kv-transfer-config: %w", err)
	}
	v.values["kv-transfer-config"] = string(text)
	return nil
}

func (v variables) expandValue(value any) (any, error) {
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, inner := range value {
			expanded, err := v.expandValue(inner)
			if err != nil {
				return nil, err
			}
			out[key] = expanded
		}
		return out, nil
	case string:
		text, err := v.expand(value)
		if number, wrong := strconv.Atoi(text); wrong == nil && reference.FindString(value) == value {
			return number, err
		}
		return text, err
	}
	return value, nil
}

func lookPath(command string) (string, error) { return exec.LookPath(command) }
