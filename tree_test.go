package kvproof

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxLines is the length from which a file wants to be a package. Generated
// files are free.
const maxLines = 300

var (
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

	// foreignPaths are directories of a machine on which somebody worked. A
	// path of a URL or of a longer path is none.
	foreignPaths = regexp.MustCompile(`(^|[\s"'` + "`" + `(=:,<>\[])/(work|farm|root|home/[a-z0-9_-]+)/[A-Za-z0-9._-]`)

	// registryHosts serve packages. Which one a build asks is the business of
	// the machine that builds, so no tracked file says it.
	registryHosts = regexp.MustCompile(`(proxy|sum)\.golang\.org|pypi\.org|files\.pythonhosted\.org|registry\.npmjs\.org`)
)

// trackedFiles returns the files that git tracks and that still exist, as
// slash-separated paths.
func trackedFiles(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("The tracked files are not known, because this is no git checkout or git is missing: %v.", err)
	}
	files := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	return slices.DeleteFunc(files, func(name string) bool {
		info, err := os.Lstat(name)
		return err != nil || !info.Mode().IsRegular()
	})
}

func TestGoFilesStaySmall(t *testing.T) {
	for _, name := range trackedFiles(t) {
		if filepath.Ext(name) != ".go" {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if lines := bytes.Count(text, []byte("\n")); lines > maxLines && !generated.Match(text) {
			t.Errorf("%s has %d lines, more than %d: let it become a package or several files", name, lines, maxLines)
		}
	}
}

func TestTrackedFilesNameNoMachine(t *testing.T) {
	hosts := buildHosts(t)
	for _, name := range trackedFiles(t) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, found := range machineNames(string(text), hosts) {
			t.Errorf("%s: %s", name, found)
		}
	}
}

// buildHosts returns the hosts that the go command here fetches modules from,
// except this one.
func buildHosts(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOPROXY", "GOSUMDB").Output()
	require.NoError(t, err)
	var hosts []string
	for _, field := range strings.FieldsFunc(string(out), func(r rune) bool { return strings.ContainsRune(",|+ \n", r) }) {
		u, err := url.Parse(field)
		if err != nil || u.Hostname() == "" || u.Hostname() == "localhost" || net.ParseIP(u.Hostname()) != nil {
			continue
		}
		hosts = append(hosts, u.Hostname())
	}
	return hosts
}

// machineNames returns what in text names a directory of one machine or a host
// that serves packages, with line numbers.
func machineNames(text string, hosts []string) []string {
	var found []string
	for i, line := range strings.Split(text, "\n") {
		for _, match := range []string{foreignPaths.FindString(line), registryHosts.FindString(line)} {
			if match != "" {
				found = append(found, lineOf(i, match))
			}
		}
		for _, host := range hosts {
			if strings.Contains(line, host) {
				found = append(found, lineOf(i, host))
			}
		}
	}
	return found
}

// lineOf says where something was found, counting lines from 1.
func lineOf(index int, what string) string {
	return fmt.Sprintf("line %d: %s", index+1, strings.TrimSpace(what))
}

func TestMachineNamesAreFound(t *testing.T) {
	slash := "/"
	for _, c := range []struct{ name, text, want string }{
		{"a path", "see\n" + slash + "work/main/README.md", "line 2: " + slash + "work/m"},
		{"a quoted path", `open("` + slash + `home/ada/data.jsonl")`, `line 1: "` + slash + `home/ada/d`},
		{"a registry", "GOPROXY=https://proxy" + ".golang.org", "line 1: proxy" + ".golang.org"},
		{"the proxy of this machine", "go get https://mirror.example/x", "line 1: mirror.example"},
		{"part of a longer path", "docs" + slash + "work/plan.md", ""},
		{"part of a URL", "https://example.org" + slash + "work/plan", ""},
		{"a word", "the work of others", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := machineNames(c.text, []string{"mirror.example"})
			if c.want == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, c.want, found[0])
		})
	}
}
