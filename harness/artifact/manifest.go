package artifact

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/gpu"
)

// A Manifest says what a run was: enough to repeat it and to judge whether two
// runs may be compared.
type Manifest struct {
	RunID    string            `json:"run_id"`
	Started  time.Time         `json:"started"`
	Command  []string          `json:"command"`
	Settings map[string]string `json:"settings"` // effective flags
	Host     Host              `json:"host"`
	Commit   string            `json:"commit"`
	GPU      *GPUs             `json:"gpu,omitempty"` // nil: none is known
	Rows     []RowManifest     `json:"rows"`
	Notes    []string          `json:"notes,omitempty"` // what could not be measured, and why
}

// GPUs are those of a run.
type GPUs struct {
	Choice string      `json:"choice"` // -gpu
	IDs    []string    `json:"ids"`    // pinned for all rows; none: all
	Start  []gpu.Facts `json:"start"`
	End    []gpu.Facts `json:"end,omitempty"` // after the last row, whose server was still up
}

// A RowManifest is one row as it ran.
type RowManifest struct {
	Backend   string              `json:"backend"`
	Workload  string              `json:"workload,omitempty"` // where the row was sized for one
	ReuseMode string              `json:"reuse_mode"`         // none, prefix, chunk
	Model     string              `json:"model"`
	BlockSize int                 `json:"block_size"`
	Endpoints map[string]Endpoint `json:"endpoints"`
	Law       string              `json:"law"` // of usage
	Facts     map[string]string   `json:"facts"`
}

// An Endpoint is where a service listened.
type Endpoint struct {
	URL string `json:"url"`
}

// A Host is the machine that ran the client.
type Host struct {
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Kernel     string `json:"kernel"`
	CPU        string `json:"cpu"`
	CPUs       int    `json:"cpus"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Go         string `json:"go"`
}

// ThisHost describes the machine; what it cannot read stays empty.
func ThisHost() Host {
	h := Host{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
		CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0),
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		h.Kernel = strings.TrimSpace(string(release))
	}
	if info, err := os.Open("/proc/cpuinfo"); err == nil {
		defer info.Close()
		for lines := bufio.NewScanner(info); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				h.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	return h
}

// ThisCommit is the revision that the binary was built from, with "+dirty"
// behind it when the tree had changes; "unknown" if nobody can tell.
func ThisCommit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		var revision, dirty string
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "+dirty"
			}
		}
		if revision != "" {
			return revision + dirty
		}
	}
	// go test does not stamp the binary; the tree that it runs in can tell.
	out, err := exec.Command("git", "describe", "--always", "--abbrev=40", "--dirty=+dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
