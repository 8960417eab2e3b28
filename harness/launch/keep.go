package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	docker "github.com/ory/dockertest/v3/docker"
)

// A KeptContainer is one that was left up on purpose: nobody sweeps it. Its labels
// cannot be changed any more, so that a file beside the lock of its run says so.
type KeptContainer struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Image    string    `json:"image"`
	Endpoint string    `json:"endpoint"` // of its container engine
	Since    time.Time `json:"since"`
}

// End is the command that ends it.
func (k KeptContainer) End() string { return "docker rm -f " + shortID(k.ID) }

// shortID is as much of an id as people write.
func shortID(id string) string { return id[:min(12, len(id))] }

func keptPath(dir, id string) string { return filepath.Join(dir, id+".container") }

// Keep leaves the container up when the launcher closes, and keeps later runs from
// sweeping it. Ending it is up to a person from now on.
func (s *ContainerService) Keep() error {
	k := KeptContainer{ID: s.ID, Name: s.Name, Image: s.image, Endpoint: s.client.Endpoint(), Since: time.Now()}
	text, err := json.MarshalIndent(k, "", "  ")
	if err == nil {
		err = os.WriteFile(keptPath(s.launcher.dir, s.ID), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keeping the container of %s: %w", s.Name, err)
	}
	s.launcher.removeContainer(s)
	s.end()
	s.watching.Wait()
	return s.log.Close()
}

// End is the command with which a person ends it.
func (s *ContainerService) End() string { return KeptContainer{ID: s.ID}.End() }

// KeptContainers are those that runs with their records in dir have left up and
// nobody has ended. An engine that does not answer cannot say, and counts as having
// them still.
func KeptContainers(ctx context.Context, dir string) ([]KeptContainer, error) {
	paths, err := filepath.Glob(keptPath(dir, "*"))
	if err != nil {
		return nil, err
	}
	var kept []KeptContainer
	var errs []error
	for _, path := range paths {
		var k KeptContainer
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &k)
		}
		switch {
		case errors.Is(err, os.ErrNotExist): // another run saw just now that it is gone
		case err != nil:
			errs = append(errs, fmt.Errorf("reading the record %s: %w", path, err))
		case k.gone(ctx):
			errs = append(errs, removeIfThere(path))
		default:
			kept = append(kept, k)
		}
	}
	return kept, errors.Join(errs...)
}

// goneTimeout bounds the question after one container.
const goneTimeout = 10 * time.Second

// gone says that its engine knows it no more.
func (k KeptContainer) gone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	client, err := docker.NewClient(k.Endpoint)
	if err != nil {
		return false
	}
	_, err = client.InspectContainerWithContext(k.ID, ctx)
	var none *docker.NoSuchContainer
	return errors.As(err, &none)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
