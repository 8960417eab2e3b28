// Package launch brings the services of a row up and down. A [Launcher] belongs
// to one run: it owns what it starts, ends it in reverse order, and sweeps what
// earlier runs left behind when they were killed.
//
//	l, err := launch.New(dir)                // takes a lock, sweeps
//	defer l.Close(context.WithoutCancel(ctx))
//	ports, err := launch.FreePorts(1)
//	url := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
//	service, err := l.Start(ctx, launch.Process{
//		Name:  "engine",
//		Argv:  []string{"vllm", "serve", model, "--port", strconv.Itoa(ports[0])},
//		Env:   []string{"PYTHONHASHSEED=0"},
//		Ports: ports,
//		Ready: launch.HTTP(url + "/health"),
//		Log:   filepath.Join(logs, "engine.log"),
//	})
//
// Start returns once the service is ready. One that ends before that is an
// error at once, with its exit code and the last lines of its log, and so is
// one that has said in its log that it will not come up.
package launch
