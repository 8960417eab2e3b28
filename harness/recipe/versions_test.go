package recipe

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/lmcmp/wire"
	"github.com/kvproof/kvproof/harness/mini/engine"
	"github.com/kvproof/kvproof/harness/row"
)

// TestVersionsAreSaidOnce: what scripts install, what Dockerfiles start from and
// what the code imitates is what versions.toml says.
func TestVersionsAreSaidOnce(t *testing.T) {
	v := known()
	for _, c := range []struct{ file, pattern, want string }{
		{"scripts/vllm.sh", `(?m)^vllm=(\S+)`, v.Pins["vllm"]},
		{"scripts/vllm.sh", `(?m)^torch=(\S+)`, v.Pins["vllm-torch"]},
		{"scripts/vllm.sh", `(?m)^lmcache=(\S+)`, v.Pins["lmcache"]},
		{"scripts/lmcache.sh", `(?m)^pinned=(\S+)`, v.Pins["lmcache"]},
		{"scripts/lmcache.sh", `(?m)^torch=(\S+)`, v.Pins["lmcache-torch"]},
		{"scripts/llamacpp.sh", `(?m)^xllamacpp=(\S+)`, v.Pins["xllamacpp"]},
		{"scripts/images.sh", `(?m)^vllm=(\S+)`, v.Pins["vllm"]},
		{"scripts/images.sh", `(?m)^lmcache=(\S+)`, v.Pins["lmcache"]},
		{"docker/vllm.Dockerfile", `(?m)^ARG VLLM=(\S+)`, v.Pins["vllm"]},
		{"docker/vllm.Dockerfile", `(?m)^ARG LMCACHE=(\S+)`, v.Pins["lmcache"]},
		{"docker/lmcache.Dockerfile", `(?m)^ARG VLLM=(\S+)`, v.Pins["vllm"]},
		{"docker/daser.Dockerfile", `(?m)^ARG VLLM=(\S+)`, v.Pins["vllm"]},
		{"docker/vllm.Dockerfile", `(?m)^FROM (\S+)`, strings.ReplaceAll(v.Images["base"], v.Pins["vllm"], "${VLLM}")},
		{"docker/lmcache.Dockerfile", `(?m)^FROM (\S+)`, strings.ReplaceAll(v.Images["vllm"], v.Pins["vllm"], "${VLLM}")},
		{"docker/daser.Dockerfile", `(?m)^FROM (\S+)`, strings.ReplaceAll(v.Images["vllm"], v.Pins["vllm"], "${VLLM}")},
		{"scripts/images.sh", `-t "(kvproof/vllm\S+)"`, strings.ReplaceAll(v.Images["vllm"], v.Pins["vllm"], "$vllm")},
		{"scripts/images.sh", `-t "(kvproof/lmcache\S+)"`, strings.ReplaceAll(v.Images["lmcache"], v.Pins["lmcache"], "$lmcache")},
		{"scripts/images.sh", `-t (kvproof/daser\S+)`, v.Images["daser"]},
	} {
		text, err := os.ReadFile(filepath.Join("../..", c.file))
		require.NoError(t, err)
		require.NotEmpty(t, c.want)
		found := regexp.MustCompile(c.pattern).FindAllStringSubmatch(string(text), -1)
		require.Len(t, found, 1, "%s: %s", c.file, c.pattern)
		require.Equal(t, c.want, found[0][1], "%s, against harness/recipe/files/versions.toml", c.file)
	}
	require.Equal(t, v.Pins["lmcache"], wire.Newest().Version, "the newest dialect")
	require.Equal(t, v.Pins["vllm"]+"+mini", engine.DefaultVersion)
	for name, p := range programs() {
		if p.Container != nil {
			require.NotEmpty(t, p.Container.Image, "program %s", name)
		}
	}
}

// TestDocsNameKnownVersions: a release that the docs, workflows or scripts name is
// one that is pinned, or that the wire is known of.
func TestDocsNameKnownVersions(t *testing.T) {
	v := known()
	releases := map[string][]string{"vLLM": {v.Pins["vllm"]}, "LMCache": wire.Versions(), "xllamacpp": {v.Pins["xllamacpp"]}}
	named := regexp.MustCompile(`(vLLM|LMCache|xllamacpp) v?(\d+\.\d+\.\d+)`)
	image := regexp.MustCompile(`kvproof/(vllm|lmcache|daser):([\w.$]+)`)
	seen := make(map[string]bool)
	for _, pattern := range []string{"README.md", "Makefile", "docs/*.md", "scripts/*.sh", "docker/*", ".github/workflows/*", "bench_test/gpu_test.go"} {
		paths, err := filepath.Glob(filepath.Join("../..", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, paths, pattern)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, m := range named.FindAllStringSubmatch(string(text), -1) {
				require.Contains(t, releases[m[1]], m[2], "%s names %s", path, m[0])
				seen[m[1]] = true
			}
			for _, m := range image.FindAllStringSubmatch(string(text), -1) {
				if !strings.Contains(m[2], "$") {
					require.Equal(t, v.Images[m[1]], strings.TrimRight(m[0], "."), path)
				}
			}
		}
	}
	require.Len(t, seen, len(releases), "the patterns find something")
}

func TestReleaseOf(t *testing.T) {
	releases := []release{{From: "0.0.0", Note: "old"}, {From: "0.10.0", Note: "middle"}, {From: "0.32.0"}}
	for _, c := range []struct{ version, from, note string }{
		{"0.9.1", "0.0.0", "old"},
		{"0.10.0", "0.10.0", "middle"},
		{"v0.31.5rc2", "0.10.0", "middle"},
		{"0.32.0+cpu", "0.32.0", ""},
		{"0.33.0", "0.32.0", "newer than 0.32.0, which was observed: taken for that"},
		{"1.0.0.dev3", "0.32.0", "newer than 0.32.0, which was observed: taken for that"},
		{"nightly", "0.32.0", `version "nightly" has not three numbers: taken for 0.32.0`},
	} {
		r := releaseOf(releases, "0.32.0", c.version)
		require.Equal(t, c.from, r.From, c.version)
		require.Equal(t, c.note, r.Note, c.version)
	}
}

func TestVersionsRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[pins]\nvllm = \"1.2.3\"\n[[vllm]]\nfrom = \"0.1.0\"\nwihtout = []", "nothing reads vllm.wihtout"},
		{"[[lmcache]]\nfrom = \"0.5\"", `from: version "0.5" has not three numbers`},
		{"[[vllm]]\nfrom = \"0.2.0\"\n[[vllm]]\nfrom = \"0.1.0\"", "0.1.0 comes after 0.2.0: the oldest release goes first"},
	} {
		_, err := parseVersions(c.text)
		require.ErrorContains(t, err, c.want)
	}
}

// TestReleasesOfServers: by the versions that servers say they are, counters are
// read under their older names, witnesses that they cannot have are not required,
// and what nobody has observed is noted.
func TestReleasesOfServers(t *testing.T) {
	for _, c := range []struct {
		engine, cache, counter string
		optional               []string
		notes                  map[string]string
	}{
		{"0.32.0", `"0.5.6"`, "vllm:prefix_cache_hits_total", nil, map[string]string{}},
		{"0.8.5", `"0.4.2"`, "vllm:gpu_prefix_cache_hits_total", []string{"sources", "backend"}, map[string]string{
			"engine-note":          "older than anything that was observed; its counters may count blocks",
			"lmcache-version-note": "older than anything that was observed; it may not count hits in tokens",
		}},
		{"0.40.1", `"0.6.0"`, "vllm:prefix_cache_hits_total", nil, map[string]string{
			"engine-note":          "newer than 0.32.0, which was observed: taken for that",
			"lmcache-version-note": "newer than 0.5.6, which was observed: taken for that",
		}},
	} {
		t.Run(c.engine, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/version" {
					fmt.Fprint(w, c.cache)
					return
				}
				fmt.Fprintf(w, "%s 7\n", c.counter)
			}))
			t.Cleanup(server.Close)
			e := Endpoints{Engine: server.URL, Backend: server.URL, Context: 1024, Vocab: 1024, Facts: map[string]string{"engine": c.engine}}
			e.versioned(t.Context(), true, true, http.DefaultClient)
			require.Equal(t, strings.Trim(c.cache, `"`), e.Facts["lmcache-version"])
			for fact, want := range c.notes {
				require.Equal(t, want, e.Facts[fact])
			}
			require.Len(t, e.Facts, 2+len(c.notes))

			file, ok, err := builtIn("vllm", "lmcache")
			require.NoError(t, err)
			require.True(t, ok)
			assembled := file.spec().assemble(e, row.Env{BlockSize: 16, Concurrency: 1})
			t.Cleanup(func() { require.NoError(t, assembled.Close(t.Context())) })
			for _, w := range assembled.Witnesses {
				require.Equal(t, !slices.Contains(c.optional, w.Name), w.Required, w.Name)
			}
			snapshot, err := assembled.Probes[0].Snapshot(t.Context())
			require.NoError(t, err)
			require.Equal(t, "vllm:prefix_cache_hits_total", snapshot.Series[0].Name)
		})
	}
}
