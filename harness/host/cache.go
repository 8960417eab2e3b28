package host

import (
	"fmt"
	"os"
	"path/filepath"
)

// CacheDir is where installed servers, models and the records of what runs are
// kept: KVPROOF_CACHE, or kvproof in the user's cache directory, as the scripts
// that install have it.
func CacheDir() (string, error) {
	if dir := os.Getenv("KVPROOF_CACHE"); dir != "" {
		return dir, nil
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("looking for the cache directory: %w", err)
	}
	return filepath.Join(user, "kvproof"), nil
}
