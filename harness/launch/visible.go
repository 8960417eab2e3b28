package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	docker "github.com/ory/dockertest/v3/docker"
)

const (
	// noRuntime is what a container engine lacks that cannot hand over GPUs.
	noRuntime = "install nvidia-container-toolkit on the host of the container engine, then restart the engine"

	// visibleTimeout bounds the look into a container: without the driver's
	// persistence mode the first nvidia-smi takes seconds for each GPU.
	visibleTimeout = time.Minute
)

// explainStart puts what a container engine says that cannot do what it was asked
// into words with which somebody can do something. (Texts as observed on 20.10 and
// the 29 line; CDI is a way of newer engines to describe devices.)
func explainStart(err error) error {
	if err == nil {
		return nil
	}
	switch text := err.Error(); {
	case strings.Contains(text, "could not select device driver"), strings.Contains(text, "AMD CDI spec not found"):
		return fmt.Errorf("the container engine has no NVIDIA runtime: %s (%w)", noRuntime, err)
	case strings.Contains(text, "unresolvable CDI devices"):
		return fmt.Errorf("the container engine knows no such GPU: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml describes those of its host (%w)", err)
	}
	return err
}

// seesGPUs looks from inside the container whether the GPUs are there that it was
// started with: some engines pass over the request in silence, and an engine of
// tokens that finds none may run on, on the CPU.
func (s *ContainerService) seesGPUs(ctx context.Context, devices *DeviceRequest) error {
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	out, code, err := s.exec(ctx, "nvidia-smi", "-L")
	if notInImage(code, err) { // the runtime mounts it; an image may ask it not to
		out, code, err = s.exec(ctx, "ls", "/dev")
		if notInImage(code, err) {
			out, code, err = "it has neither nvidia-smi, which the runtime mounts, nor ls", 1, nil
		}
	}
	var gone *docker.ContainerNotRunning
	var failed *docker.Error
	switch {
	case errors.As(err, &gone), errors.As(err, &failed) && failed.Status == 409:
		return nil // it has ended, and whoever waits for it says how
	case err != nil:
		return fmt.Errorf("looking for GPUs in its container: %w", err)
	}
	return countGPUs(out, code, devices)
}

// countGPUs reads the output of nvidia-smi -L, or of ls /dev.
func countGPUs(out string, code int, devices *DeviceRequest) error {
	seen := 0
	for line := range strings.Lines(out) {
		name := strings.TrimSpace(line)
		number, node := strings.CutPrefix(name, "nvidia") // nvidia0, and not nvidiactl
		if strings.HasPrefix(name, "GPU ") || strings.HasPrefix(name, "MIG ") || node && number != "" && strings.Trim(number, "0123456789") == "" {
			seen++
		}
	}
	switch wanted := max(1, len(devices.DeviceIDs)); {
	case code != 0 || seen == 0:
		return fmt.Errorf("its container sees no GPU: %s; asked inside: %s", noRuntime, abridge(out))
	case seen < wanted:
		return fmt.Errorf("its container sees %d GPU, and %d were asked for (%s)", seen, wanted, strings.Join(devices.DeviceIDs, ", "))
	}
	return nil
}

// abridge is an output as part of a sentence.
func abridge(out string) string {
	const most = 300
	text := strings.Join(strings.Fields(out), " ")
	switch {
	case text == "":
		return "no answer"
	case len(text) > most:
		return strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}

// exec runs a command in the container.
func (s *ContainerService) exec(ctx context.Context, argv ...string) (out string, code int, err error) {
	exec, err := s.client.CreateExec(docker.CreateExecOptions{Container: s.ID, Cmd: argv, AttachStdout: true, AttachStderr: true, Context: ctx})
	if err != nil {
		return "", 0, err
	}
	var text bytes.Buffer
	if err := s.client.StartExec(exec.ID, docker.StartExecOptions{OutputStream: &text, ErrorStream: &text, Context: ctx}); err != nil {
		return "", 0, err
	}
	state, err := s.client.InspectExec(exec.ID)
	if err != nil {
		return "", 0, err
	}
	return text.String(), state.ExitCode, nil
}

// notInImage says that there was nothing to run: engines say so by an exit code as
// a shell's, or by an error.
func notInImage(code int, err error) bool {
	return code == 126 || code == 127 || err != nil && strings.Contains(err.Error(), "executable file not found")
}
