package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/recipe"
)

// A rung is one step of reality, with what this machine lacks for it.
type rung struct {
	name    string
	missing []lack
}

// A lack is something that is not here, and the command that would add it.
type lack struct{ what, command string }

// runDoctor says which rungs this machine can run.
func runDoctor(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("kvproof doctor", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		say(out, "usage: kvproof doctor\n\nSays which rungs this machine can run, and what would add each missing one.\n")
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil || flags.NArg() > 0:
		say(errs, "kvproof doctor: it takes no arguments\n")
		return exitUsage
	}
	for _, r := range rungs(ctx) {
		if len(r.missing) == 0 {
			say(out, "yes  %s\n", r.name)
			continue
		}
		say(out, "no   %s\n", r.name)
		for _, l := range r.missing {
			say(out, "       %s: %s\n", l.what, l.command)
		}
	}
	return kept(ctx, out, errs)
}

// rungs are all steps, the cheapest first.
func rungs(ctx context.Context) []rung {
	command := func(name, get string) []lack {
		if _, err := exec.LookPath(name); err != nil {
			return []lack{{name + " is not installed", get}}
		}
		return nil
	}
	program := func(name string) []lack {
		if path, install, ok := recipe.Installed(name); !ok {
			return []lack{{name + " is not installed (" + path + ")", install}}
		}
		return nil
	}
	engine := containerEngine(ctx)
	return []rung{
		{"the miniature stack (make bench)", append(command("go", "see https://go.dev/doc/install"), command("make", "apt-get install make")...)},
		{"LMCache's server behind the miniature engine (-tags lmcache)", program("lmcache")},
		{"llama.cpp (-tags llamacpp)", program("llamacpp")},
		{"vLLM on the CPU (-tags vllm)", program("vllm")},
		{"vLLM on the CPU with LMCache (-tags 'vllm lmcache')", append(program("vllm"), program("lmcache")...)},
		{"containers", engine},
		{"containers with a GPU (-tags gpu)", append(engine, gpu(ctx)...)},
	}
}

// containerEngine asks whether a container engine answers.
func containerEngine(ctx context.Context) []lack {
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		host = "unix:///var/run/docker.sock"
	}
	scheme, address, _ := strings.Cut(host, "://")
	network := map[string]string{"unix": "unix", "tcp": "tcp"}[scheme]
	if network == "" {
		return []lack{{"DOCKER_HOST=" + host + " is of no kind that is known here", "unset DOCKER_HOST"}}
	}
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/_ping", nil)
	if err == nil {
		var response *http.Response
		if response, err = client.Do(request); err == nil {
			response.Body.Close()
			return nil
		}
	}
	return []lack{{"no container engine answers at " + host, "scripts/engine.sh up (as root), or start Docker"}}
}

// gpu says what a container would need to see an NVIDIA GPU of this machine.
func gpu(ctx context.Context) (missing []lack) {
	if runtime.GOOS != "linux" {
		return []lack{{"GPUs reach containers on Linux only", "use a Linux host"}}
	}
	if !launch.HasDriver(ctx) {
		missing = append(missing, lack{"no NVIDIA driver on this host", "install the driver of your GPU"})
	}
	for _, name := range []string{"nvidia-container-runtime-hook", "nvidia-cdi-hook"} {
		if _, err := exec.LookPath(name); err == nil {
			return missing
		}
	}
	return append(missing, lack{"the container engine has no NVIDIA runtime", "install nvidia-container-toolkit, then restart the container engine"})
}

// kept lists services that a run left up, on purpose or because it was killed.
func kept(ctx context.Context, out, errs io.Writer) int {
	dir, err := launch.DefaultDir()
	if err != nil {
		say(errs, "kvproof doctor: %v\n", err)
		return exitFailed
	}
	records, err := launch.Records(dir)
	if err != nil {
		say(errs, "kvproof doctor: %v\n", err)
		return exitFailed
	}
	for _, r := range records {
		what := "of a run that still goes on, or swept by the next one"
		if r.Kept {
			what = "kept by -keep; to end it: " + r.End()
		}
		say(out, "up   %s, process %d, since %s: %s\n", r.Name, r.PID, r.Started.Format(time.DateTime), what)
	}
	containers, err := launch.KeptContainers(ctx, dir)
	if err != nil {
		say(errs, "kvproof doctor: %v\n", err)
		return exitFailed
	}
	for _, k := range containers {
		say(out, "up   %s, in a container of %s, since %s: kept by -keep; to end it: %s\n", k.Name, k.Image, k.Since.Format(time.DateTime), k.End())
	}
	return exitOK
}
