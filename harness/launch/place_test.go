package launch

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run removes what nobody owns any more, and not what it cannot know about: a
// container engine may be shared with other hosts, other file systems, other users.
func TestContainersOfOthersStay(t *testing.T) {
	f, l := fakeEngine(t), launcher(t)
	dir := t.TempDir()
	file, gone := filepath.Join(dir, "file"), filepath.Join(dir, "run-gone.lock")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	hidden := filepath.Join(file, "run-hidden.lock") // opening it fails otherwise than by its absence
	mine := placeOf(gone)
	at := func(change func(*place)) string {
		p := mine
		change(&p)
		return p.String()
	}
	var list []map[string]any
	var removed, kept []string
	for _, c := range []struct {
		id, lock, place, state string
		removed                bool
	}{
		{"gone", gone, mine.String(), "running", true},
		{"held", l.owner.path(), placeOf(l.owner.path()).String(), "running", false},
		{"hidden", hidden, placeOf(hidden).String(), "running", false},
		{"of-a-directory-that-is-gone", filepath.Join(dir, "no", "run-1.lock"), at(func(p *place) { p.dir = "1:2" }), "running", true},
		{"of-another-host", gone, at(func(p *place) { p.host = "other" }), "exited", false},
		{"of-the-same-name-elsewhere", gone, at(func(p *place) { p.boot = "other" }), "running", false},
		{"of-an-earlier-start", gone, at(func(p *place) { p.boot = "other" }), "exited", true},
		{"of-a-container-of-this-host", gone, at(func(p *place) { p.view, p.dir = "mnt:[1]", "1:2" }), "running", false},
		{"of-one-that-shares-the-directory", gone, at(func(p *place) { p.view = "mnt:[1]" }), "running", true},
		{"of-one-that-has-none-there", filepath.Join(dir, "no", "run-1.lock"), at(func(p *place) { p.view, p.dir = "mnt:[1]", "" }), "running", false},
		{"of-who-knows-whom", gone, "", "exited", false},
	} {
		list = append(list, map[string]any{"Id": c.id, "State": c.state, "Labels": map[string]string{ownerLabel: c.lock, placeLabel: c.place}})
		if c.removed {
			removed = append(removed, "DELETE /containers/"+c.id)
		} else {
			kept = append(kept, "DELETE /containers/"+c.id)
		}
	}
	text, err := json.Marshal(list)
	require.NoError(t, err)
	f.Answers["GET /containers/json"] = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }
	s, err := l.StartContainer(t.Context(), Container{Name: "engine", Image: "kvproof/vllm:1", Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	require.NoError(t, s.Stop(t.Context()))
	require.Subset(t, f.Asked(), removed)
	for _, request := range kept {
		require.NotContains(t, f.Asked(), request)
	}
}

// What was kept stays: for its own run, and for those that sweep after it, until a
// person has ended it.
func TestKeepContainer(t *testing.T) {
	f, dir := fakeEngine(t), t.TempDir()
	l, err := New(dir)
	require.NoError(t, err)
	s, err := l.StartContainer(t.Context(), Container{Name: "engine", Image: "kvproof/vllm:1", Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	require.NoError(t, s.Keep())
	require.Equal(t, "docker rm -f c1", s.End())
	require.NoError(t, l.Close(context.WithoutCancel(t.Context())))
	require.NotContains(t, f.Asked(), "DELETE /containers/c1")

	list, err := json.Marshal([]map[string]any{{"Id": "c1", "State": "running", "Labels": f.Created()[0]["Labels"]}})
	require.NoError(t, err)
	f.Answers["GET /containers/json"] = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(list) }
	sweep := func() {
		next, err := New(dir)
		require.NoError(t, err)
		_, err = next.StartContainer(t.Context(), Container{Name: "engine", Image: "no/such:1", Log: filepath.Join(t.TempDir(), "log")})
		require.ErrorContains(t, err, "no such image")
		require.NoError(t, next.Close(context.WithoutCancel(t.Context())))
	}
	sweep()
	require.NotContains(t, f.Asked(), "DELETE /containers/c1")
	kept, err := KeptContainers(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, kept, 1)
	require.Equal(t, "engine kvproof/vllm:1 docker rm -f c1", kept[0].Name+" "+kept[0].Image+" "+kept[0].End())

	f.Answers["GET /containers/c1/json"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
	kept, err = KeptContainers(t.Context(), dir)
	require.NoError(t, err)
	require.Empty(t, kept)
	sweep()
	require.Contains(t, f.Asked(), "DELETE /containers/c1", "nothing says any more that it was kept")
}
