// Package enginetest is a container engine behind a Unix socket that runs nothing:
// it answers as Docker does, keeps what it was asked, and lets a test say what a
// command prints.
//
//	e := &enginetest.Engine{Images: []string{"kvproof/vllm:1"}}
//	close, err := e.Listen(socket)
//	t.Setenv("DOCKER_HOST", "unix://"+socket)
package enginetest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// An Engine is a stand-in for a container engine. Its fields are set before it
// listens.
type Engine struct {
	Images []string
	// Run says what a command prints and its exit code, in a container of its own or
	// in one that is there; false: it is not in the image, and what was to run by
	// itself runs on. nil: so for every command.
	Run func(argv []string) (out string, code int, ok bool)
	// Started is called with what was created when it starts; an error fails the
	// start. nil: nothing happens.
	Started func(created map[string]any) error
	// Answers, by method and path, in place of the engine's own.
	Answers map[string]http.HandlerFunc

	mu      sync.Mutex
	asked   []string
	created []map[string]any
	ended   []chan struct{} // of the containers
	execs   [][]string
}

// Listen serves the engine at a socket until close.
func (e *Engine) Listen(socket string) (close func() error, err error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: e}
	go func() { _ = server.Serve(listener) }() // ends with Close
	return server.Close, nil
}

// Asked are the requests so far, by method and path.
func (e *Engine) Asked() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked)
}

// Created are the bodies of the create requests so far, with numbers as they came.
func (e *Engine) Created() []map[string]any {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.created)
}

// ServeHTTP answers one request. Containers are c1, c2, … in the order of their
// creation, commands in them e1, e2, ….
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Method + " " + r.URL.Path
	e.mu.Lock()
	e.asked = append(e.asked, key)
	answer := e.Answers[key]
	e.mu.Unlock()
	if r.URL.Path == "/containers/create" {
		e.create(r)
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case answer != nil:
		answer(w, r)
	case key == "GET /_ping":
		say(w, "OK")
	case key == "GET /version":
		say(w, `{"ApiVersion":"1.41"}`)
	case key == "GET /containers/json":
		say(w, "[]")
	case parts[0] == "images" && slices.Contains(e.Images, strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/images/"), "/json")):
		say(w, `{"Id":"sha256:1"}`)
	case parts[0] == "images":
		w.WriteHeader(http.StatusNotFound)
	case key == "POST /containers/create":
		w.WriteHeader(http.StatusCreated)
		say(w, fmt.Sprintf(`{"Id":"c%d"}`, len(e.Created())))
	case parts[0] == "containers" && len(parts) >= 2:
		e.container(w, r, parts)
	case parts[0] == "exec":
		e.exec(w, parts)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (e *Engine) create(r *http.Request) {
	body := make(map[string]any)
	decoder := json.NewDecoder(r.Body)
	decoder.UseNumber() // sizes of memory are 64-bit
	_ = decoder.Decode(&body)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.created = append(e.created, body)
	e.ended = append(e.ended, make(chan struct{}))
}

// container answers what is about one of them.
func (e *Engine) container(w http.ResponseWriter, r *http.Request, parts []string) {
	var n int
	_, _ = fmt.Sscanf(parts[1], "c%d", &n)
	e.mu.Lock()
	if n < 1 || n > len(e.created) {
		e.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
		return
	}
	created, ended := e.created[n-1], e.ended[n-1]
	e.mu.Unlock()
	out, code, ok := e.run(append(words(created["Entrypoint"]), words(created["Cmd"])...))
	what := r.Method
	if len(parts) > 2 {
		what += " " + parts[2]
	}
	switch what {
	case "GET json":
		say(w, fmt.Sprintf(`{"Id":%q}`, parts[1]))
	case "POST start":
		if e.Started != nil {
			if err := e.Started(created); err != nil {
				w.WriteHeader(http.StatusInternalServerError)
				_ = json.NewEncoder(w).Encode(map[string]string{"message": err.Error()})
				return
			}
		}
		if ok {
			e.end(ended)
		}
		w.WriteHeader(http.StatusNoContent)
	case "POST wait":
		select {
		case <-ended:
			say(w, fmt.Sprintf(`{"StatusCode":%d}`, code))
		case <-r.Context().Done():
		}
	case "GET logs":
		if ok {
			_, _ = w.Write(frame(out))
		}
	case "POST exec":
		var body struct{ Cmd []string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		e.mu.Lock()
		e.execs = append(e.execs, body.Cmd)
		id := len(e.execs)
		e.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		say(w, fmt.Sprintf(`{"Id":"e%d"}`, id))
	case "POST stop", "DELETE":
		e.end(ended)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (e *Engine) end(ended chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-ended:
	default:
		close(ended)
	}
}

// exec answers what is about a command in a container.
func (e *Engine) exec(w http.ResponseWriter, parts []string) {
	var n int
	_, _ = fmt.Sscanf(parts[1], "e%d", &n)
	e.mu.Lock()
	argv := e.execs[n-1]
	e.mu.Unlock()
	out, code, ok := e.run(argv)
	if !ok {
		out, code = fmt.Sprintf("OCI runtime exec failed: exec: %q: executable file not found in $PATH: unknown\r\n", argv[0]), 126
	}
	if parts[2] == "json" {
		say(w, fmt.Sprintf(`{"ID":"e%d","ExitCode":%d}`, n, code))
		return
	}
	connection, buffer, err := http.NewResponseController(w).Hijack() // the stream is no HTTP any more
	if err != nil {
		return
	}
	defer connection.Close()
	_, _ = buffer.WriteString("HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n")
	_, _ = buffer.Write(frame(out))
	_ = buffer.Flush()
}

func (e *Engine) run(argv []string) (out string, code int, ok bool) {
	if e.Run == nil {
		return "", 0, false
	}
	return e.Run(argv)
}

// frame is output on stdout as the engine sends it.
func frame(text string) []byte {
	head := make([]byte, 8)
	head[0] = 1
	binary.BigEndian.PutUint32(head[4:], uint32(len(text)))
	return append(head, text...)
}

func words(value any) (out []string) {
	list, _ := value.([]any)
	for _, v := range list {
		out = append(out, fmt.Sprint(v))
	}
	return out
}

func say(w http.ResponseWriter, text string) { _, _ = w.Write([]byte(text)) }
