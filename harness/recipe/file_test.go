package recipe

import (
	"io/fs"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/launch"
	"github.com/kvproof/kvproof/harness/row"
)

// minimal is a row file with nothing more than it needs.
const minimal = `
row = "my-connector"
reuse = "prefix"
features = ["streaming", "reuse", "reset"]
law = "vllm"

[cold]
how = "reset"

[[service]]
name = "engine"
argv = ["my-engine", "--port", "${port}"]
ports = ["http"]
url = "http://127.0.0.1:${port}"
ready = "http://127.0.0.1:${port}/health"

[[witness]]
name = "engine"
probe = "engine"
hits = "my_hits"
`

func TestEveryBuiltInFileIsRead(t *testing.T) {
	require.NoError(t, fs.WalkDir(files, "files", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".toml" || path.Dir(name) == "files" {
			return err
		}
		t.Run(name, func(t *testing.T) {
			text, err := files.ReadFile(name)
			require.NoError(t, err)
			f, err := parseFile(name, string(text))
			require.NoError(t, err)
			require.Equal(t, strings.TrimSuffix(path.Base(name), ".toml"), f.Row, "a file is found by the name of its row")
			require.Contains(t, Names(), f.Row)
			require.NotEmpty(t, f.About)
			require.NotEmpty(t, f.Cold.About)
			require.Contains(t, Engines(), path.Base(path.Dir(name)))

			r := Deployment{Engine: path.Base(path.Dir(name)), Model: Model{Name: "tiny", Dir: "model", Context: 100}}.Row(f).(deployedRow)
			vars, err := r.variables(row.Env{BlockSize: 32, Concurrency: 2}, "dir")
			require.NoError(t, err)
			for _, s := range f.Services {
				for i, port := range s.Ports {
					vars.port(s.Name, port, 1000+i, i == 0)
				}
			}
			require.NoError(t, vars.transferConfig(f.KVTransferConfig))
			if f.Row == "lmcache" {
				require.Contains(t, vars.values["kv-transfer-config"], `"lmcache.mp.port":1001}`, "a port is a number")
			}
			for _, s := range f.Services {
				texts := append(append(s.Argv, s.Args...), s.URL, s.Ready, s.Metrics)
				if c := s.Container; c != nil {
					texts = slices.Concat(texts, c.Argv, c.Entrypoint, c.Binds)
				}
				for _, text := range texts {
					_, err := vars.of(s.Name).expand(text)
					require.NoError(t, err)
				}
				for _, value := range s.Env {
					_, err := vars.of(s.Name).expand(value)
					require.NoError(t, err)
				}
			}
		})
		return nil
	}))
}

func TestAFileIsRefusedWithWhatWouldBeRight(t *testing.T) {
	_, err := parseFile("my.toml", minimal)
	require.NoError(t, err)
	for _, c := range []struct{ name, from, to, want string }{
		{"not TOML", `row = "my-connector"`, `row = my-connector`, "my.toml:2:"},
		{"a word spelled wrong", "reuse =", "re-use =", "my.toml: nothing reads re-use"},
		{"in a table", "how =", "hwo =", "nothing reads cold.hwo"},
		{"a name that benchstat reads otherwise", `"my-connector"`, `"my-connector-2"`, `row is "my-connector-2", want a name such as`},
		{"law", `"vllm"`, `"linear"`, `law is "linear", want one of all-but-the-last, document-lookup, documents, file-connector, lmcache, lookup, none, vllm`},
		{"feature", `"streaming",`, `"streaming", "magic",`, `features has "magic"`},
		{"cold", `how = "reset"`, `how = "sudo"`, `cold.how is "sudo"`},
		{"a reset that is none", `how = "reset"`, `how = "fresh"`, "the feature reset and cold.how = \"fresh\" contradict each other"},
		{"documents that nothing deletes", `"streaming",`, `"streaming", "documents",`, `the feature documents goes with cold.how = "documents" and settle.status = "daser"`},
		{"a law without reuse", `"reuse", `, "", "the feature reuse and law = \"vllm\" contradict each other"},
		{"nothing to start", "argv =", "args =", "service engine needs argv or the image of a container, ports and ready"},
		{"no engine", `name = "engine"` + "\nargv", `name = "motor"` + "\nargv", "no service is called engine"},
		{"a witness of nobody", `probe = "engine"`, `probe = "cache"`, `witness engine: probe is "cache", want a service: engine`},
		{"program", "argv =", "program = \"emacs\"\nargv =", `service engine: unknown program "emacs"; the programs are [daser llamacpp lmcache vllm]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Contains(t, minimal, c.from)
			_, err := parseFile("my.toml", strings.Replace(minimal, c.from, c.to, 1))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestExpand(t *testing.T) {
	v := variables{values: map[string]string{"dir": "/d", "kv.gib": "2"}}
	v.port("engine", "http", 8001, true)
	v.port("cache", "http", 8002, true)
	v.port("cache", "mq", 5555, false)
	for _, c := range []struct{ service, text, want string }{
		{"engine", "${dir}/x-${kv.gib}", "/d/x-2"},
		{"engine", "${port}", "8001"},
		{"cache", "${port} ${port.mq}", "8002 5555"},
		{"engine", "${cache.port.mq}", "5555"},
		{"engine", `{"a": 1} $HOME`, `{"a": 1} $HOME`},
	} {
		got, err := v.of(c.service).expand(c.text)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	require.ElementsMatch(t, []int{8002, 5555}, v.of("cache").ports())
	_, err := v.of("engine").expand("--port ${prot}")
	require.ErrorContains(t, err, `${prot} in "--port ${prot}" is unknown; there are cache.port`)
}

func TestParseStack(t *testing.T) {
	for _, c := range []struct {
		text string
		want Stack
	}{
		{"mini", Stack{InProcess, InProcess, InProcess}},
		{"process", Stack{Process, Process, Process}},
		{"engine=process", Stack{Process, Process, Process}},
		{"engine=mini,lmcache=process", Stack{InProcess, Process, InProcess}},
		{"lmcache=process", Stack{InProcess, Process, InProcess}},
	} {
		got, err := ParseStack(c.text)
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, got, c.text)
	}
	for text, want := range map[string]string{
		"":                        `unknown stack ""`,
		"k8s":                     `unknown stack "k8s": the stacks are mini, process, docker, attach`,
		"engine=mini,engine=mini": "engine is listed twice",
		"engine=mini,process":     "a list needs service=kind in each entry",
		"cache=mini":              `unknown service "cache": the services are engine, lmcache, daser`,
	} {
		_, err := ParseStack(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestRealModel(t *testing.T) {
	t.Setenv("KVPROOF_CACHE", t.TempDir())
	m, err := RealModel("tiny")
	require.NoError(t, err)
	require.NoError(t, m.prepare())
	read, err := RealModel(m.Dir)
	require.NoError(t, err)
	require.Equal(t, m, read, "what is known without the files is what they say")
	_, err = RealModel("no/such/model")
	require.ErrorContains(t, err, "want tiny, or a directory with a model in Hugging Face's layout")
}

// Every key, law and feature of a file stands in its reference.
func TestTheReferenceIsComplete(t *testing.T) {
	page, err := os.ReadFile("../../docs/backends.md")
	require.NoError(t, err)
	words := lawNames()
	for _, feature := range fileFeatures {
		words = append(words, string(feature))
	}
	for _, table := range []any{File{}, ModelFile{}, ColdFile{}, SettleFile{}, ServiceFile{}, ContainerFile{}, WitnessFile{}} {
		for field := range reflect.TypeOf(table).Fields() {
			words = append(words, field.Tag.Get("toml"))
		}
	}
	for _, word := range words {
		require.Contains(t, string(page), "`"+word+"`")
	}
}

// Every service of a row in containers gets the GPUs that it needs, and what is
// not in its own form stays out.
func TestContainersOfTheRows(t *testing.T) {
	for _, name := range []string{"baseline", "engine-cache", "lmcache"} {
		f, ok, err := builtIn("vllm", name)
		require.NoError(t, err)
		require.True(t, ok)
		d := &deployed{row: Deployment{Engine: "vllm", Docker: true, GPUs: []string{"1"}, Model: Model{Name: "m", Dir: "/models/m"}}.Row(f).(deployedRow)}
		vars, err := d.row.variables(row.Env{BlockSize: 128, Concurrency: 2}, "/d")
		require.NoError(t, err)
		for _, s := range f.Services {
			for i, port := range s.Ports {
				vars.port(s.Name, port, 1000+i, i == 0)
			}
		}
		require.NoError(t, vars.transferConfig(f.KVTransferConfig))
		for _, s := range f.Services {
			require.True(t, d.row.deployment.contained(s), "%s of %s", s.Name, name)
			c, err := d.container(s, launch.Process{Name: s.Name}, vars.of(s.Name))
			require.NoError(t, err)
			require.Equal(t, launch.GPUs("1"), c.Devices)
			require.NotEmpty(t, c.Image)
			if s.Name == "engine" {
				require.Contains(t, c.Argv, "/models/m")
				require.Contains(t, c.Binds, "/models/m:/models/m:ro")
				require.Subset(t, c.Argv, s.Args[:1], "what makes it this row comes after the program's own")
			}
		}
	}
}
