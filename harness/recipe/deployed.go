package recipe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/kvproof/kvproof/harness/launch"
)

// restart ends a service as a crash would, and starts it again.
func (d *deployed) restart(ctx context.Context, name string) error {
	d.mu.Lock()
	i := slices.IndexFunc(d.services, func(s *launch.Service) bool { return s.Name == name })
	d.mu.Unlock()
	if i < 0 {
		return fmt.Errorf("restarting %s: row %s has no such service", name, d.row.name)
	}
	d.services[i].Kill()
	if err := d.services[i].Stop(ctx); err != nil {
		return fmt.Errorf("restarting %s: %w", name, err)
	}
	service, err := d.launcher.Start(ctx, d.processes[i])
	if err != nil {
		return fmt.Errorf("restarting %s: %w", name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.services[i] = service
	return nil
}

// logs is where the services' logs go: beside the artifacts, or with the row's
// own directory.
func (d *deployed) logs() string {
	if d.env.Dir != "" {
		return filepath.Join(d.env.Dir, "logs")
	}
	return filepath.Join(d.dir, "logs")
}

// died is the first service that ended by itself; nil: all run.
func (d *deployed) died() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.services {
		if err := s.Err(); err != nil {
			return err
		}
	}
	return nil
}

// keep leaves the services up and returns an -attach value for them.
func (d *deployed) keep() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	attach := "engine=" + d.urls[engineProbe]
	for _, s := range d.services {
		if err := s.Keep(); err != nil {
			return "", err
		}
		if s.Name == "lmcache" || s.Name == "daser" {
			attach += "," + s.Name + "=" + d.urls[s.Name]
		}
	}
	d.kept = true
	return attach, nil
}

func (d *deployed) close(ctx context.Context) error {
	if d.kept {
		return nil
	}
	var errs []error
	for _, s := range slices.Backward(d.services) {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}
