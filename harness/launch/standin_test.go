package launch

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// standIn is in the environment of a copy of the test binary that plays a
// service.
const standIn = "LAUNCH_STANDIN"

// blind in its environment keeps it from seeing GPUs.
const blind = "LAUNCH_BLIND"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "nvidia-smi" {
		os.Exit(listGPUs())
	}
	if play := os.Getenv(standIn); play != "" {
		os.Exit(plays[play](os.Args[1:]))
	}
	os.Exit(m.Run())
}

// listGPUs prints what the NVIDIA runtime would have handed to this container: the
// engine puts its request into the environment of the first process.
func listGPUs() (code int) {
	environment, err := os.ReadFile("/proc/1/environ")
	if err != nil {
		fmt.Println(err)
		return 9
	}
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		if list, ok := strings.CutPrefix(string(entry), "NVIDIA_VISIBLE_DEVICES="); ok && os.Getenv(blind) == "" {
			for id := range strings.SplitSeq(list, ",") {
				fmt.Printf("GPU %s: of the stand-in\n", id)
			}
			return 0
		}
	}
	fmt.Println("No devices found.")
	return 0
}

// forever does nothing until it is killed. A program whose goroutines all wait
// would end as one in a deadlock, if it did not wait for a signal.
func forever() int {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
	select {}
}

// plays are what the stand-in can do; each returns its exit code.
var plays = map[string]func(args []string) int{
	"serve": func(args []string) int { // on the port args[0], until TERM
		l, err := net.Listen("tcp", "127.0.0.1:"+args[0])
		if err != nil {
			fmt.Println(err)
			return 1
		}
		go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "%s, SPT_NOENV=%s", os.Getenv("LAUNCH_ANSWER"), os.Getenv("SPT_NOENV"))
		}))
		<-terminated()
		fmt.Println("ending as asked" + os.Getenv("LAUNCH_NAME"))
		return 0
	},
	"die": func([]string) int {
		fmt.Println("loading weights")
		fmt.Fprintln(os.Stderr, "no such device")
		return 3
	},
	"refuse": func([]string) int {
		fmt.Println("importing")
		fmt.Println("ValueError: No common block size for 16")
		return forever()
	},
	"hang": func([]string) int { return forever() },
	"stubborn": func(args []string) int { // so is its child; args[0] is a port on which both are known to be up
		signal.Ignore(syscall.SIGTERM)
		child := copyOf("deaf", args[0])
		child.Stdout = os.Stdout
		if err := child.Run(); err != nil {
			fmt.Println(err)
		}
		return 1
	},
	"deaf": func(args []string) int {
		signal.Ignore(syscall.SIGTERM)
		return listen(args[0])
	},
	"deserter": func(args []string) int { // its child leaves the group and stays
		child := copyOf("deaf", args[0])
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		<-terminated()
		return 0
	},
	"owner": func(args []string) int { // a run that starts a service on the port args[1] and is killed
		l, err := New(args[0])
		if err == nil {
			_, err = l.Start(context.Background(), Process{
				Name: "engine", Argv: []string{os.Args[0], args[1]}, Env: []string{standIn + "=serve"},
				Ready: TCP("127.0.0.1:" + args[1]), Log: args[2], Scratch: args[3],
			})
		}
		fmt.Println("started:", err)
		select {}
	},
}

func terminated() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	return c
}

// listen accepts connections on a port for ever.
func listen(port string) int {
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return 1
		}
		conn.Close()
	}
}

// copyOf is a copy of this binary in another play.
func copyOf(play string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), standIn+"="+play)
	return cmd
}

// playing is the test binary as a service.
func playing(t *testing.T, play string, args ...string) Process {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	return Process{
		Name: "engine", Argv: append([]string{binary}, args...), Env: []string{standIn + "=" + play}, Log: t.TempDir() + "/logs/engine.log",
	}
}
