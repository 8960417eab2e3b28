package recipe

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kvproof/kvproof/harness/row"
)

// versions is what files/versions.toml says.
type versions struct {
	Pins    map[string]string `toml:"pins"`
	Images  map[string]string `toml:"images"`
	VLLM    []release         `toml:"vllm"`
	LMCache []release         `toml:"lmcache"`
}

// A release is what a server is like from that release on.
type release struct {
	From    string            `toml:"from"`
	Note    string            `toml:"note"`
	Without []string          `toml:"without"` // witnesses that it cannot have
	Rename  map[string]string `toml:"rename"`  // its names of counters, to those of the newest
}

var known = sync.OnceValue(func() versions {
	text, err := files.ReadFile("files/versions.toml")
	if err == nil {
		var v versions
		if v, err = parseVersions(string(text)); err == nil {
			return v
		}
	}
	panic(err) // a test reads it
})

func parseVersions(text string) (versions, error) {
	var v versions
	if err := decodeTOML("versions.toml", text, &v); err != nil {
		return v, err
	}
	for name, image := range v.Images {
		v.Images[name] = os.Expand(image, func(pin string) string { return v.Pins[pin] })
	}
	for _, releases := range [][]release{v.VLLM, v.LMCache} {
		for i, r := range releases {
			if _, err := numbers(r.From); err != nil {
				return v, fmt.Errorf("versions.toml: from: %w", err)
			}
			if i > 0 && compare(releases[i-1].From, r.From) >= 0 {
				return v, fmt.Errorf("versions.toml: %s comes after %s: the oldest release goes first", r.From, releases[i-1].From)
			}
		}
	}
	return v, nil
}

// LMCacheRelease is the release that `make setup-lmcache` installs.
func LMCacheRelease() string { return known().Pins["lmcache"] }

// numbers are the leading numbers of a version: 0.32.0 of 0.32.0+cpu.
func numbers(version string) ([3]int, error) {
	var out [3]int
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 4)
	if len(parts) < 3 {
		return out, fmt.Errorf("version %q has not three numbers", version)
	}
	for i := range out {
		digits := parts[i]
		if end := strings.IndexFunc(parts[i], func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
			digits = digits[:end] // 6rc2, 0+cpu
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return out, fmt.Errorf("version %q has not three numbers", version)
		}
		out[i] = n
	}
	return out, nil
}

// compare compares two versions that have numbers.
func compare(a, b string) int {
	x, _ := numbers(a)
	y, _ := numbers(b)
	return slices.Compare(x[:], y[:])
}

// releaseOf is what a server of that version is like, with a note where nobody
// has observed it: one that is newer than the pin, or has no version to speak of,
// is taken for the newest.
func releaseOf(releases []release, pin, version string) release {
	newest := releases[len(releases)-1]
	if _, err := numbers(version); err != nil {
		newest.Note = fmt.Sprintf("%v: taken for %s", err, pin)
		return newest
	}
	if compare(version, pin) > 0 {
		newest.Note = fmt.Sprintf("newer than %s, which was observed: taken for that", pin)
		return newest
	}
	i := slices.IndexFunc(releases, func(r release) bool { return compare(r.From, version) > 0 })
	if i < 0 {
		return newest
	}
	return releases[max(0, i-1)]
}

// versioned notes what is known of vLLM and of LMCache, where the servers are
// those, by the versions that they say they are.
func (e *Endpoints) versioned(ctx context.Context, vllm, lmcache bool, client *http.Client) {
	of := func(fact, program string, releases []release) {
		version := e.Facts[fact]
		if version == "" {
			return
		}
		r := releaseOf(releases, known().Pins[program], version)
		if r.Note != "" {
			e.Facts[fact+"-note"] = r.Note
		}
		e.without = append(e.without, r.Without...)
		if program == "vllm" {
			e.rename = r.Rename
		}
	}
	if vllm {
		of("engine", "vllm", known().VLLM)
	}
	if !lmcache || e.Backend == "" {
		return
	}
	if version, err := lmcacheVersion(ctx, e.Backend, client); err == nil {
		e.Facts["lmcache-version"] = version
		of("lmcache-version", "lmcache", known().LMCache)
	}
}

// lmcacheVersion asks LMCache's server for its release: a string of JSON.
func lmcacheVersion(ctx context.Context, base string, client *http.Client) (version string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/version", nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s/version: %s", base, response.Status)
	}
	err = json.NewDecoder(io.LimitReader(response.Body, 1<<10)).Decode(&version)
	return version, err
}

// renamed reads counters under the names that newer releases have for them.
type renamed struct {
	row.Probe
	names map[string]string
}

func (r renamed) Snapshot(ctx context.Context) (row.Snapshot, error) {
	s, err := r.Probe.Snapshot(ctx)
	for i, series := range s.Series {
		name, total := strings.CutSuffix(series.Name, "_total")
		now, ok := r.names[name]
		if !ok {
			continue
		}
		if total {
			now += "_total"
		}
		s.Series[i].Name = now
	}
	return s, err
}
