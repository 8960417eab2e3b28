package recipe

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/kvproof/kvproof/harness/host"
	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/lmcmp"
)

// An LMCacheServer is LMCache's multiprocess server, started by itself as a
// process on this machine.
type LMCacheServer struct {
	Release string  // empty: LMCacheRelease
	Chunk   int     // tokens
	L1GB    float64 // size of its memory; 0: a quarter
	Workers int     // transfers at once; 0: 8
	NoPool  bool    // without shared memory for engine_driven transfers, and those not offered
	GPU     bool    // with the GPUs of this machine, for clients whose KV lies there
	L2Dir   string  // directory of a second tier; empty: none
	Dir     string  // of its log
}

// ErrNotInstalled says that a program is not there, and how to get it.
var ErrNotInstalled = errors.New("not installed")

// FindLMCache is the path of the `lmcache` command of a release in the cache
// directory.
func FindLMCache(release string) (string, error) {
	cache, err := host.CacheDir()
	if err != nil {
		return "", fmt.Errorf("looking for LMCache: %w", err)
	}
	name, how := "lmcache", "make setup-lmcache"
	if release != "" && release != LMCacheRelease() {
		name, how = "lmcache-"+release, "LMCACHE_VERSION="+release+" scripts/lmcache.sh"
	}
	path := filepath.Join(cache, "lmcache", "bin", name)
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("LMCache %s is %w; `%s` installs it", cmp.Or(release, LMCacheRelease()), ErrNotInstalled, how)
	}
	return path, nil
}

// poolPrefix begins the name of the server's shared memory: LMCache's own
// prefix, then ours, then the process that started it.
const poolPrefix = "lmcache_l1_pool_kvproof_"

// shmDir is where Linux shows shared memory.
const shmDir = "/dev/shm"

// Start starts the server on free ports and returns it with its addresses. What
// its pool leaves in shared memory after a kill is removed by Stop, and by the
// next Start.
func (s LMCacheServer) Start(ctx context.Context, launcher *launch.Launcher) (*RunningLMCache, error) {
	path, err := FindLMCache(s.Release)
	if err != nil {
		return nil, err
	}
	if err := sweepPools(); err != nil {
		return nil, err
	}
	ports, err := launch.FreePorts(2)
	if err != nil {
		return nil, err
	}
	pool := fmt.Sprintf("%d_%s", os.Getpid(), rand.Text())
	workers := strconv.Itoa(cmp.Or(s.Workers, 8))
	argv := []string{
		path, "server", "--host", "127.0.0.1", "--port", strconv.Itoa(ports[0]),
		"--http-host", "127.0.0.1", "--http-port", strconv.Itoa(ports[1]),
		"--chunk-size", strconv.Itoa(s.Chunk), "--l1-size-gb", fmt.Sprint(cmp.Or(s.L1GB, 0.25)), "--eviction-policy", "LRU",
		"--max-gpu-workers", workers, "--max-cpu-workers", workers,
	}
	if !s.NoPool {
		argv = append(argv, "--supported-transfer-mode", "auto", "--shm-name", "kvproof_"+pool)
	}
	if s.L2Dir != "" {
		argv = append(argv, "--l2-adapter", fmt.Sprintf(`{"type":"fs","base_path":%q}`, s.L2Dir))
	}
	endpoints := lmcmp.Endpoints{
		RPC: fmt.Sprintf("tcp://127.0.0.1:%d", ports[0]), HTTP: fmt.Sprintf("http://127.0.0.1:%d", ports[1]),
	}
	env := []string{"LMCACHE_TRACK_USAGE=false", "DO_NOT_TRACK=1", "LMCACHE_DISABLE_BANNER=1", "PYTHONHASHSEED=0"}
	if !s.GPU {
		env = append(env, "CUDA_VISIBLE_DEVICES=")
	}
	process := launch.Process{
		Name: "lmcache", Argv: argv, Ports: ports, Log: filepath.Join(s.Dir, fmt.Sprintf("lmcache-%d.log", ports[0])),
		Env: env,
		Ready: launch.All(launch.HTTP(endpoints.HTTP+"/healthcheck"), func(ctx context.Context) error {
			// Its HTTP side can be healthy while nothing answers on the other.
			server, err := lmcmp.Discover(ctx, endpoints, "")
			if err != nil {
				return err
			}
			server.Close()
			return nil
		}),
	}
	begin := func(ctx context.Context) (*launch.Service, error) { return launcher.Start(ctx, process) }
	service, err := begin(ctx)
	if err != nil {
		return nil, err
	}
	return &RunningLMCache{Service: service, Endpoints: endpoints, pool: filepath.Join(shmDir, poolPrefix+pool), begin: begin}, nil
}

// A RunningLMCache is a server that was started.
type RunningLMCache struct {
	*launch.Service
	Endpoints lmcmp.Endpoints

	pool  string // file of its shared memory, where it has any
	begin func(context.Context) (*launch.Service, error)
}

// Restart ends the server as a crash would and starts it again, where it was.
func (r *RunningLMCache) Restart(ctx context.Context) error {
	r.Kill()
	if err := r.Stop(ctx); err != nil {
		return fmt.Errorf("restarting the cache server: %w", err)
	}
	again, err := r.begin(ctx)
	if err != nil {
		return fmt.Errorf("restarting the cache server: %w", err)
	}
	r.Service = again
	return nil
}

// Pool is the file of the server's shared memory.
func (r *RunningLMCache) Pool() string { return r.pool }

// Stop ends the server, and removes the shared memory that a killed one leaves.
func (r *RunningLMCache) Stop(ctx context.Context) error {
	err := r.Service.Stop(ctx)
	if removing := os.Remove(r.pool); removing != nil && !errors.Is(removing, fs.ErrNotExist) {
		err = errors.Join(err, removing)
	}
	return err
}

// rowMark begins, after the prefix, the names of the pools of rows' servers.
const rowMark = "row_"

// poolName is ${shm} for a row that keeps its things in dir: a name of its own
// that says which process started it.
func poolName(dir string) string {
	return fmt.Sprintf("kvproof_%s%d_%s", rowMark, os.Getpid(), strings.TrimPrefix(filepath.Base(dir), "kvproof-"))
}

// poolPath is the file of that pool.
func poolPath(dir string) string {
	return filepath.Join(shmDir, strings.TrimSuffix(poolPrefix, "kvproof_")+poolName(dir))
}

// removePool removes what a killed server of that row leaves in shared memory.
func removePool(dir string) error {
	err := os.Remove(poolPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sweepPools removes the pools of servers that were started by processes which
// no longer live; their servers are ended by the launcher's own sweep. What a
// record still names is a server that was kept.
func sweepPools() error {
	dir, err := launch.DefaultDir()
	if err != nil {
		return err
	}
	records, err := launch.Records(dir)
	if err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(shmDir, poolPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		name := strings.TrimPrefix(filepath.Base(path), poolPrefix)
		owner, _, _ := strings.Cut(strings.TrimPrefix(name, rowMark), "_")
		pid, err := strconv.Atoi(owner)
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		if slices.ContainsFunc(records, func(r launch.Record) bool { return slices.Contains(r.Argv, "kvproof_"+name) }) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweeping a cache server's shared memory: %w", err)
		}
	}
	return nil
}
