// Package harness is the thin glue between testing.B and the packages below
// it: the suite's flags, TestMain, the walk over rows and workloads, the
// metrics of a benchmark line and the table at the end.
//
//	func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
//
//	func BenchmarkServe(b *testing.B) {
//		harness.Each(b, fixtures.Workloads(), func(b *testing.B, cell *harness.Cell) {
//			for b.Loop() {
//				cell.Cycle(b)
//			}
//			cell.Report(b)
//		})
//	}
package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvproof/kvproof/harness/artifact"
	"github.com/kvproof/kvproof/harness/gpu"
	"github.com/kvproof/kvproof/harness/metric"
	"github.com/kvproof/kvproof/harness/paced"
	"github.com/kvproof/kvproof/harness/recipe"
	"github.com/kvproof/kvproof/harness/row"
	"github.com/kvproof/kvproof/harness/run"
)

var settings *Settings

// RegisterFlags defines the suite's flags on the command line, with the default
// of -stack and -engine that the build tags ask for. It is called from a package variable of the benchmarks, before TestMain parses.
func RegisterFlags(stack, engine string) *Settings {
	settings = Register(flag.CommandLine, stack, engine)
	return settings
}

// exitUsage is the exit code for settings that are refused.
const exitUsage = 2

// Main is TestMain: it checks the settings before anything starts, prints the
// plan where benchmarks run, runs the tests and benchmarks until an interrupt,
// ends what was started, and shows the results as a table. It returns the
// process's exit code.
func Main(m *testing.M) int {
	if served, err := paced.Main(); served { // the other process of a benchmark of the client
		if err != nil {
			fmt.Fprintf(os.Stderr, "kvproof: %v\n", err)
			return 1
		}
		return 0
	}
	flag.Parse()
	err := checkCommandLine()
	var sel selection
	if err == nil {
		sel, err = settings.resolve()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	progress := openProgress()
	if err == nil && benchmarksRun() {
		err = settings.tokenize(ctx, &sel, progress)
	}
	if err == nil {
		err = settings.plan(&sel)
	}
	if err == nil {
		err = sel.gpu.Pin()
	}
	progress.clear()
	if err != nil {
		fmt.Fprintf(os.Stderr, "kvproof: %s\n", strings.ReplaceAll(err.Error(), "\n", "\nkvproof: "))
		return exitUsage
	}

	s := &session{ctx: ctx, settings: settings, selection: sel, progress: progress}
	current = s
	if benchmarksRun() {
		if err := s.begin(); err != nil {
			fmt.Fprintf(os.Stderr, "kvproof: %v\n", err)
			return 1
		}
	}
	code := m.Run()
	code = max(code, s.end())
	if benchmarksRun() && len(s.table) == 0 && s.cacheRuns == 0 && !s.measured && ctx.Err() == nil {
		fmt.Printf("# nothing was measured: %s\n", s.whyNothing())
		if s.settings.Require {
			code = max(code, 1)
		}
	}
	if ctx.Err() != nil {
		fmt.Println("# interrupted: what was measured until then is in", s.where())
		code = max(code, 1)
	}
	return code
}

// otherVariables are KVPROOF_ variables that are no flags of the suite.
var otherVariables = []string{headersVariable, "KVPROOF_CACHE", paced.Variable, "KVPROOF_DOCTEST", "KVPROOF_HEALTHY", "KVPROOF_MUTANTS"}

// checkCommandLine refuses what would be passed over in silence: words after
// the flags, which end them, and variables that no flag has.
func checkCommandLine() error {
	var errs []error
	if flag.NArg() > 0 {
		errs = append(errs, fmt.Errorf("argument %q: only flags are taken, and those after it would be ignored (go test takes packages before the first flag that is the suite's own)", flag.Arg(0)))
	}
	var names, variables []string
	settings.own.VisitAll(func(f *flag.Flag) {
		names, variables = append(names, f.Name), append(variables, variableOf(f.Name))
	})
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		known := slices.Contains(variables, name) || slices.Contains(otherVariables, name)
		if strings.HasPrefix(name, "KVPROOF_") && !known {
			errs = append(errs, fmt.Errorf("%s=%s: no flag has this variable; the flags are %s", name, value, strings.Join(names, ", ")))
		}
	}
	return errors.Join(errs...)
}

// benchmarksRun says whether this process was asked for benchmarks, and not
// for their names.
func benchmarksRun() bool {
	return flagValue("test.bench") != "" && flagValue("test.list") == ""
}

func flagValue(name string) string {
	if f := flag.Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// A session is one run of the test binary.
type session struct {
	ctx       context.Context // ends with an interrupt
	settings  *Settings
	selection selection
	progress  *progress
	artifacts *artifact.Run // nil until benchmarks run
	manifest  artifact.Manifest
	table     []*tableRow
	cacheRuns int // valid runs of the cache-server benchmark
	breakEven []breakEvenLine
	measured  bool        // something that is no cell
	answers   run.Answers // of the baseline, for the other rows

	controls       run.Controls // where equal inputs need not give equal bits
	controlling    sync.Once
	calibrating    sync.Once
	calibration    *calibration // of the client; nil: not known
	controlFailure error

	servers []*sharedServer
	lives   []liveServer // of rows that are no miniature ones
	scratch string       // for their logs, where there are no artifacts

	memories []gpu.Memory // of the GPU of the run, before the first of them
	onGPU    bool         // one of them held some
}

var current *session

// begin prepares for benchmarks: one op is one cycle unless -benchtime says
// otherwise, no alarm, a directory for artifacts, and the plan on stdout.
func (s *session) begin() error {
	if !wasGiven("test.benchtime") {
		if err := flag.Set("test.benchtime", "1x"); err != nil {
			return err
		}
	}
	if flagValue("test.timeout") == "10m0s" { // go test's own default
		if err := flag.Set("test.timeout", "0"); err != nil {
			return err
		}
	}
	var err error
	if s.artifacts, err = artifact.Create(s.selection.results, time.Now()); err != nil {
		return err
	}
	s.manifest = artifact.Manifest{
		Started: time.Now(), Command: os.Args, Settings: s.settings.effective(),
		Host: artifact.ThisHost(), Commit: artifact.ThisCommit(),
	}
	s.describeGPU()
	if err := s.artifacts.WriteManifest(s.manifest); err != nil {
		return err
	}
	if err := s.artifacts.WritePrepared(s.selection.prepared); err != nil {
		return err
	}
	if err := s.printPlan(os.Stdout); err != nil {
		return err
	}
	for _, line := range s.configLines() {
		fmt.Println(line)
	}
	assume := metric.Exact
	if s.selection.stack.Engine != recipe.InProcess {
		assume = metric.Nothing
	}
	for _, line := range metric.UnitLines(assume) {
		fmt.Println(line)
	}
	return nil
}

// end closes what is still up and prints the table. A cell that failed makes
// the run fail: testing itself forgets the failures of all but the first of
// -count's repeats (observed on Go 1.26: PASS and exit code 0).
func (s *session) end() (code int) {
	throttled, err := s.describeGPUAgain() // while servers are up: clocks of an idle GPU say nothing
	if err != nil {
		fmt.Fprintf(os.Stderr, "kvproof: %v\n", err)
		code = 1
	}
	for _, r := range s.table {
		if r.failure != "" {
			code = 1
		}
	}
	for _, server := range s.servers {
		if err := server.close(); err != nil {
			fmt.Fprintf(os.Stderr, "kvproof: %v\n", err)
			code = 1
		}
	}
	if err := s.calibration.close(); err != nil {
		fmt.Fprintf(os.Stderr, "kvproof: %v\n", err)
		code = 1
	}
	if err := s.closeLives(); err != nil {
		fmt.Fprintf(os.Stderr, "kvproof: %v\n", err)
		code = 1
	}
	s.progress.clear()
	if len(s.table) > 0 {
		if err := s.printSummaries(os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "kvproof: %v\n", err)
			code = 1
		}
		printTable(os.Stdout, s.table)
		printAnatomy(os.Stdout, s.table)
	}
	printBreakEven(os.Stdout, s.breakEven)
	for _, sentence := range throttled {
		fmt.Println("# note:", sentence)
	}
	if len(s.table)+len(s.breakEven) > 0 {
		fmt.Println("# artifacts:", s.where())
	}
	return code
}

// whyNothing is why a run has measured nothing.
func (s *session) whyNothing() string {
	if slices.ContainsFunc(s.selection.rows, func(r row.Row) bool { return missingOf(r) == "" }) {
		return "no benchmark matches -bench=" + flagValue("test.bench")
	}
	return "every row lacks something, as said above"
}

func (s *session) where() string {
	if s.artifacts == nil {
		return "no directory (no benchmark ran)"
	}
	return s.artifacts.Dir
}

func wasGiven(name string) (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
}

// closeTimeout bounds the end of a server; the run's own context may be over.
const closeTimeout = 90 * time.Second // a vLLM that does not end when asked is killed after 30

func closeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), closeTimeout, errors.New("closing took too long"))
}
