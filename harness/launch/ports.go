package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FreePorts returns n different TCP ports on which nothing listens now. Nothing
// reserves them: somebody else may take one before the service does, which then
// fails its start.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		defer l.Close() // all at once, or a port could come twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// checkPorts names the ports that somebody listens on already: a service would
// fail on them, or worse, the requests would go to another one.
func checkPorts(ports []int) error {
	var busy []string
	for _, port := range slices.Sorted(slices.Values(ports)) {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			busy = append(busy, strconv.Itoa(port))
			continue
		}
		l.Close()
	}
	if len(busy) > 0 {
		return fmt.Errorf("port %s is in use already: end what listens there, or choose another", strings.Join(busy, " and "))
	}
	return nil
}

// A Check asks a service once whether it is ready.
type Check func(context.Context) error

// probeTimeout bounds one check: a server that accepts and then hangs must not
// stop the polling.
const probeTimeout = 5 * time.Second

// HTTP is ready when a GET of url is answered with status 200.
func HTTP(url string) Check {
	client := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", url, response.Status)
		}
		return nil
	}
}

// TCP is ready when a connection to a host and port is accepted.
func TCP(address string) Check { return dial("tcp", address) }

// Unix is ready when a connection to a socket in the file system is accepted.
func Unix(path string) Check { return dial("unix", path) }

func dial(network, address string) Check {
	return func(ctx context.Context) error {
		dialer := net.Dialer{Timeout: probeTimeout}
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// All is ready when each check is.
func All(checks ...Check) Check {
	return func(ctx context.Context) error {
		var errs []error
		for _, check := range checks {
			errs = append(errs, check(ctx))
		}
		return errors.Join(errs...)
	}
}
