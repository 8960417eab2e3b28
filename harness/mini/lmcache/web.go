package lmcache

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"
)

// A web serves the HTTP side on an address of its own.
type web struct {
	url   string
	http  http.Server
	ended chan error
}

func serveWeb(ctx context.Context, addr string, h http.Handler, problems *log.Logger) (*web, error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	w := &web{url: "http://" + reachable(listener.Addr()), ended: make(chan error, 1)}
	w.http.Handler, w.http.ErrorLog, w.http.ReadHeaderTimeout = h, problems, 10*time.Second
	go func() { w.ended <- w.http.Serve(listener) }()
	return w, nil
}

// stop waits for requests that run; when ctx ends first it cuts them.
func (w *web) stop(ctx context.Context) error {
	err := w.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("waiting for requests at %s: %w", w.url, err), w.http.Close())
	}
	if ended := <-w.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serving %s: %w", w.url, ended))
	}
	return err
}
