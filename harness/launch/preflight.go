package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kvproof/kvproof/harness/gpu"
)

// Needs are what the containers of a row need.
type Needs struct {
	Images   []string
	Devices  *DeviceRequest // nil: no GPU
	GPUImage string         // one of the images, in which to look for GPUs; empty: nobody looks
}

// Preflight says why containers cannot be run here; nil: nothing is known to be in
// the way. Whether the container engine hands GPUs over only a start can tell (its
// list of runtimes does not), so that one is made, once in a process.
func Preflight(ctx context.Context, needs Needs) error {
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := connect(asking, nil)
	if err != nil {
		return err
	}
	if needs.Devices != nil && !HasDriver(asking) {
		return errors.New("no NVIDIA driver on this host, which the rows in containers need")
	}
	for _, image := range needs.Images {
		if _, err := client.InspectImage(image); err != nil {
			return fmt.Errorf("image %s: %w; make images builds it", image, err)
		}
	}
	if needs.Devices == nil || needs.GPUImage == "" {
		return nil
	}
	key, err := json.Marshal(needs.Devices)
	if err != nil {
		return err
	}
	return looked.once(client.Endpoint()+" "+needs.GPUImage+" "+string(key), func() error { return lookForGPUs(ctx, needs) })
}

// HasDriver says whether the host has NVIDIA's driver. WSL has no such file, but
// nvidia-smi.
func HasDriver(ctx context.Context) bool {
	if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
		return true
	}
	memories, err := gpu.Memories(ctx)
	return err == nil && len(memories) > 0
}

// looked are the answers of this process.
var looked answers

type answers struct {
	mu    sync.Mutex
	known map[string]error
}

func (a *answers) once(key string, ask func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err, ok := a.known[key]
	if !ok {
		err = ask()
		if a.known == nil {
			a.known = make(map[string]error)
		}
		a.known[key] = err
	}
	return err
}

// lookForGPUs starts nvidia-smi in a container of the image, with the request for
// GPUs that the row's will carry.
func lookForGPUs(ctx context.Context, needs Needs) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, visibleTimeout, fmt.Errorf("nvidia-smi in a container of %s did not end within %s", needs.GPUImage, visibleTimeout))
	defer cancel()
	l, err := New("")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kvproof-gpu-")
	if err != nil {
		return errors.Join(fmt.Errorf("making a directory for the log of nvidia-smi: %w", err), l.Close(ctx))
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second+killWait)
		defer cancel()
		err = errors.Join(err, l.Close(closing), os.RemoveAll(dir))
	}()
	s, err := l.create(ctx, Container{
		Name: "nvidia-smi", Image: needs.GPUImage, Entrypoint: []string{"nvidia-smi"}, Argv: []string{"-L"},
		Devices: needs.Devices, Log: filepath.Join(dir, "log"), Grace: time.Second,
	})
	switch {
	case notInImage(0, err):
		return nil // the look into the row's own container will tell
	case err != nil:
		return err
	}
	select {
	case <-s.exited:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return countGPUs(strings.Join(tail(s.path), "\n"), s.code, needs.Devices)
}
