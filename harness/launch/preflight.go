package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Preflight says why containers of these images cannot be run here, with GPUs
// where gpu; nil: nothing is known to be in the way. Whether the container engine
// hands GPUs over only a start can tell: its list of runtimes does not.
func Preflight(ctx context.Context, images []string, gpu bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := connect(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := os.Stat("/proc/driver/nvidia/version"); gpu && err != nil {
		return errors.New("no NVIDIA driver on this host, which the rows in containers need")
	}
	for _, image := range images {
		if _, err := client.InspectImage(image); err != nil {
			return fmt.Errorf("image %s: %w; make images builds it", image, err)
		}
	}
	return nil
}
