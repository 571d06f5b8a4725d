package lint

// rule forbids imports, direct ones and those that come through other packages
// of this module. Names are folders of this repository ("./internal/planner"), packages of
// the standard library or modules; a name with /... means all below it too, "std"
// the whole standard library, "*" everything.
type rule struct {
	of     []string // packages the rule is about
	never  []string // what they may not import
	except []string // what they may import although never says it
	direct bool     // look at direct imports only
	why    string
}

// What several rules speak of.
var (
	roles    = []string{"./internal/planner", "./internal/planner/plan", "./internal/planner/mix", "./planner/mesh", "./internal/planner/change", "./planner/feedback", "./internal/sourceloader/...", "./internal/constructor/...", "./client"}
	wiring   = []string{"./.", "./cmd/...", "./internal/cli", "./bench/...", "./internal/service", "./internal/trainer", "./internal/reference", "./internal/preview/...", "./internal/prepare", "./internal/sim", "./internal/rig", "./internal/metamorphic"}
	network  = []string{"google.golang.org/...", "net", "net/...", "./internal/proto", "./internal/rpc"}
	decoders = []string{"./internal/sourceloader/format/parquet", "./internal/sourceloader/format/arrow", "./internal/sourceloader/format/json", "./internal/sourceloader/format/tar", "./internal/sourceloader/format/megatron", "./internal/sourceloader/format/text", "./internal/sourceloader/format/files"}
	chance   = []string{"time", "math/rand", "math/rand/v2", "crypto/rand"}
)

var rules = []rule{
	{
		of:    []string{"./balance"},
		never: []string{"*"}, except: []string{"std"},
		why: "balance is arithmetic that anyone may take out of this repository: the standard library only",
	},
	{
		of:    []string{"./balance"},
		never: append([]string{"os", "os/...", "sync", "sync/...", "context", "log/..."}, append(network, chance...)...),
		why:   "a packing is a function of its arguments",
	},
	{
		of:    []string{"./internal/planner/plan", "./internal/planner/mix"},
		never: append([]string{"os", "os/...", "sync", "sync/...", "log", "log/...", "./internal/checkpoint", "./jobspec", "./internal/sourceloader/..."}, append(network, chance...)...),
		why:   "the plan of a step is pure: no clock, disk, network, goroutine or randomness can reach it, so that no run can differ from another",
	},
	{
		of: []string{"./planner/...", "./internal/planner/plan", "./internal/planner/mix", "./internal/planner/change", "./internal/planner/token", "./internal/planner/cut", "./internal/planner/compile", "./internal/planner/control",
			"./internal/planner/wire", "./internal/planner/steplog", "./internal/planner/status", "./internal/planner/scaling"},
		never: []string{"./internal/planner"},
		why:   "the shell of the planner is on top: nothing below it knows that it is there",
	},
	{
		of:    []string{"./planner/...", "./internal/planner/plan", "./internal/planner/mix", "./internal/planner/change", "./internal/planner/token", "./internal/planner/cut", "./internal/planner/compile"},
		never: []string{"./internal/planner/control"},
		why:   "protocols use plans, positions and changes; these know of no protocol",
	},
	{
		of:    []string{"./planner/..."},
		never: []string{"./internal/planner/..."},
		why:   "what programs of other people import needs nothing of the planner",
	},
	{
		of:    []string{"./internal/planner/token"},
		never: append([]string{"os", "os/...", "sync", "sync/...", "log", "log/...", "./internal/checkpoint", "./jobspec", "./internal/sourceloader/..."}, append(network, chance...)...), except: []string{"google.golang.org/protobuf/..."}, direct: true,
		why: "a token is a function of a position, and a position of a token: whoever plans, previews or tests reads the same",
	},
	{
		of: []string{"./internal/planner/control"},
		never: append([]string{"os", "os/...", "sync", "sync/...", "log", "log/...", "context", "./internal/checkpoint", "./internal/sourceloader/...", "./internal/constructor/...", "./client",
			"golang.org/x/sync/..."}, append(network, chance...)...),
		direct: true, // of jobspec it reads values, as it does of tokens
		why:    "every protocol of the planner is decided by events alone: time is a tick, a write an effect, so that a sequence of events replays to the same answers",
	},
	{
		of:    []string{"./internal/planner/cut"},
		never: append([]string{"os", "os/...", "sync", "sync/...", "log", "log/...", "context", "./internal/rpc", "./internal/checkpoint", "./jobspec"}, chance...), direct: true,
		why: "a part of a plan is a function of the plan: parts are cut at the same time, and cut again for a constructor that comes back",
	},
	{
		of:    []string{"./internal/planner/steplog"},
		never: []string{"./internal/planner/wire", "./internal/proto", "./jobspec", "google.golang.org/...", "net", "net/..."}, direct: true,
		why: "the log is written for whoever decides: it knows no member, no trainer and no message",
	},
	{
		of:    []string{"./internal/planner/mix"},
		never: []string{"./..."},
		why:   "the reference reader uses the weights too, so they must come without the planner",
	},
	{
		of:    []string{"./internal/constructor/..."},
		never: []string{"./internal/sourceloader/...", "./planner/...", "./internal/planner/...", "./internal/checkpoint", "./client"},
		why:   "a constructor is dumb on purpose: what it has to know comes in messages, so that it can be replaced and restarted on its own",
	},
	{
		of:    []string{"./internal/constructor/assemble"},
		never: append([]string{"os", "os/...", "sync", "sync/..."}, append(network, chance...)...),
		why:   "what a rank gets is a function of rows, layout and place",
	},
	{
		of:    []string{"./internal/constructor/deliver"},
		never: []string{"./internal/rpc", "./internal/samples", "./internal/imaging", "./internal/constructor", "./internal/constructor/assemble", "google.golang.org/grpc", "google.golang.org/grpc/...", "os", "os/...", "net", "net/..."}, direct: true,
		why: "who waits for whom is decided without a network, and without a look at what a step holds",
	},
	{
		of:    []string{"./client"},
		never: []string{"./internal/sourceloader/...", "./planner/...", "./internal/planner/...", "./internal/constructor/...", "./internal/checkpoint"},
		why:   "trainers link the client: it must stay small, and know no more than the wire says",
	},
	{
		of:    []string{"./internal/sourceloader/..."},
		never: []string{"./planner/...", "./internal/planner/...", "./internal/constructor/...", "./client", "./internal/checkpoint"}, except: []string{"./jobspec"},
		why: "a loader hands out samples by position; of the planner it knows the job spec only, never which sample comes next",
	},
	{
		of:    []string{"./planner/...", "./internal/planner/..."},
		never: []string{"./internal/sourceloader/...", "./internal/constructor/...", "./client"},
		why:   "the planner decides from metadata alone: what it never sees it cannot depend on",
	},
	{
		of:    []string{"./internal/sizing"},
		never: append([]string{"./...", "os", "os/...", "sync", "sync/...", "log", "log/...", "context"}, append(network, chance...)...), except: []string{"./internal/fault"}, direct: true,
		why: "how many loaders there are is decided from snapshots alone, so that a transcript replays to the same decisions",
	},
	{
		of:    []string{"./internal/fleet"},
		never: []string{"./..."},
		why:   "whoever starts members knows neither jobs nor roles: Kubernetes, Slurm and Ray stand behind the same seam",
	},
	{
		of:    []string{"./internal/engine/schedule"},
		never: []string{"*"},
		why:   "a schedule is a function of a snapshot: the executor and the simulator call it with the time and the bytes that they count",
	},
	{
		of:    []string{"./internal/worker"},
		never: []string{"./..."}, except: []string{"./internal/fault", "./internal/regular", "./internal/didyoumean", "./internal/fieldpath", "./internal/formats", "./internal/object", "./internal/sourceloader/format", "./internal/sourceloader/store"},
		why: "processes map batches: of whom, for what and what becomes of them is the loader's",
	},
	{
		of:    []string{"./internal/engine/solve"},
		never: append([]string{"./...", "os", "os/...", "sync", "sync/...", "log", "log/...", "context"}, append(network, chance...)...),
		why:   "the solver is the yardstick of the scheduler, so it shares no code with it",
	},
	{
		of:    append([]string{"./internal/engine/schedule", "./internal/service", "./internal/cli", "./cmd/...", "./jobspec"}, roles...),
		never: []string{"./internal/engine/simulate", "./internal/engine/solve"},
		why:   "baselines and virtual time are for tests and benchmarks: nothing that runs a job can choose them",
	},
	{
		of:    []string{"./jobspec"},
		never: append([]string{"./..."}, append(network, chance...)...), except: []string{"net/url", "./internal/fault", "./internal/regular", "./internal/didyoumean", "./internal/expr", "./internal/fieldpath", "./internal/formats"},
		why: "the spec is data with checks; every role reads it",
	},
	{
		of:    []string{"./planner/mesh", "./internal/planner/change"},
		never: append([]string{"./...", "os", "os/...", "sync", "sync/...", "log", "log/..."}, append(network, chance...)...), except: []string{"./internal/fault", "./internal/didyoumean"},
		why: "a mesh and a change are what they say: clients, tools and the reference read them without a planner",
	},
	{
		of:    []string{"./planner/feedback"},
		never: append([]string{"./...", "os", "os/..."}, append(network, chance...)...), except: []string{"./internal/fault"},
		why: "a policy moves weights by numbers alone: what it says is logged as a change, and what it is is not",
	},
	{
		of:    []string{"./planner/cost"},
		never: append([]string{"./...", "os", "os/...", "sync", "sync/...", "log", "log/..."}, append(network, chance...)...), except: []string{"./internal/fault", "./internal/didyoumean", "./internal/expr"},
		why: "a cost is a function of a sample's counts: whoever plans or measures may ask for it",
	},
	{
		of:     []string{"./internal/sourceloader/store", "./internal/sourceloader/format", "./internal/sourceloader/format/decoders", "./internal/sourceloader/order", "./internal/sourceloader/transform/...", "./internal/sourceloader/tokenize"},
		never:  append([]string{"./internal/...", "./internal/sourceloader", "./internal/proto", "google.golang.org/..."}, chance...),
		except: []string{"./internal/fault", "./internal/regular", "./internal/didyoumean", "./internal/expr", "./internal/fieldpath", "./internal/formats", "./internal/imaging", "./internal/media/npy", "./internal/media/audio", "./internal/sourceloader/store", "./internal/sourceloader/format/...", "./internal/sourceloader/order", "./internal/sourceloader/transform/...", "./internal/sourceloader/tokenize"},
		why:    "samples are a function of bytes and spec: reading them needs neither the wire, nor a clock, nor the loader around it",
	},
	{
		of:    []string{"./internal/sourceloader/format", "./internal/sourceloader/format/input", "./internal/sourceloader/order", "./internal/sourceloader/transform/..."},
		never: []string{"os", "os/...", "net", "net/..."}, direct: true,
		why: "bytes come through a store, so that every format reads from every store",
	},
	{
		of:    []string{"./internal/sourceloader/store"},
		never: []string{"./internal/sourceloader/format", "./internal/sourceloader/transform/...", "./planner/...", "./internal/planner/..."},
		why:   "where bytes are and what they mean are two questions",
	},
	{
		of:    []string{"./internal/sourceloader/format/..."},
		never: []string{"./internal/sourceloader/transform/...", "./internal/sourceloader/order", "./planner/...", "./internal/planner/..."},
		why:   "a format gives records; it never shuffles, filters or tokenizes",
	},
	{
		of:    decoders,
		never: append([]string{"./internal/sourceloader/format/decoders", "os", "os/...", "net", "net/..."}, decoders...), direct: true,
		why: "decoders meet in their table only: each can be read, tested and replaced by itself, from every store",
	},
	{
		of:    []string{"./internal/sourceloader/format"},
		never: []string{"./internal/sourceloader/format/..."},
		why:   "the seam knows no decoder, so that each can implement it",
	},
	{
		of:    []string{"./internal/formats"},
		never: []string{"*"}, except: []string{"std"},
		why: "names of formats are data: the job spec, decoders and constructors ask for them",
	},
	{
		of:    []string{"./internal/sourceloader/order"},
		never: []string{"./internal/sourceloader/transform/...", "./internal/sourceloader/tokenize"},
		why:   "the order of chunks is known before a record is read",
	},
	{
		of:    []string{"./internal/sourceloader/spill"},
		never: append([]string{"./..."}, network...),
		why:   "files of records know nothing of samples: what they lose is made again by whoever does",
	},
	{
		of:    []string{"./internal/checkpoint", "./internal/checkpoint/logtest", "./internal/checkpoint/memlog"},
		never: append([]string{"./..."}, network...), except: []string{"./internal/fault", "./internal/regular", "./internal/checkpoint", "./internal/failpoint"},
		why: "the log keeps bytes: what they mean is the planner's, so that it can be tested, and read, without one",
	},
	{
		of:    []string{"./internal/checkpoint/mirror"},
		never: append([]string{"./...", "github.com/..."}, network...), except: []string{"./internal/fault", "./internal/checkpoint", "./internal/object"}, direct: true,
		why: "the mirror keeps bytes too, and knows objects, not where they are",
	},
	{
		of:    []string{"./internal/object"},
		never: []string{"./..."}, except: []string{"./internal/fault"},
		why: "the store of objects serves logs and sources alike, and knows neither",
	},
	{
		of:    []string{"./internal/fault", "./internal/didyoumean", "./internal/regular", "./internal/batch"},
		never: []string{"*"}, except: []string{"std"},
		why: "everyone imports them, so they import no one",
	},
	{
		of:    []string{"./internal/multibuffer"},
		never: []string{"*"}, except: []string{"std", "github.com/klauspost/cpuid/v2"},
		why: "it hashes bytes, whatever they are",
	},
	{
		of:    []string{"./internal/hostmem"},
		never: []string{"./...", "google.golang.org/..."},
		why:   "it carries bytes between processes of a host: what they mean, constructors and clients know",
	},
	{
		of:    []string{"./internal/memory", "./internal/cgroup"},
		never: append([]string{"*"}, append(network, chance...)...), except: []string{"bytes", "context", "errors", "io/...", "math", "os", "path", "runtime", "runtime/...", "strconv", "strings", "sync"},
		why: "who may take memory is decided by sizes alone: not by what they are of, nor by a clock",
	},
	{
		of:    []string{"./internal/placement"},
		never: []string{"*"}, except: []string{"strings"},
		why: "planner and constructors deal the blocks of a lost loader by the same arithmetic, each on its own",
	},
	{
		of:    []string{"./internal/expr"},
		never: []string{"*"}, except: []string{"std", "./internal/fault"},
		why: "the syntax of expressions knows nothing of what they are about",
	},
	{
		of:    []string{"./internal/expr"},
		never: append([]string{"os", "os/...", "sync", "sync/...", "log", "log/..."}, append(network, chance...)...),
		why:   "a tree is a function of the text",
	},
	{
		of:    []string{"./internal/fieldpath"},
		never: []string{"*"}, except: []string{"std", "./internal/fault"},
		why: "the spec's checks and the readers of files name fields by it",
	},
	{
		of:    []string{"./internal/batch", "./internal/samples"},
		never: append([]string{"./...", "os", "os/..."}, append(network, chance...)...),
		why:   "the form of rows and samples knows nothing of who sends them",
	},
	{
		of:    []string{"./internal/imaging", "./internal/media/audio", "./internal/media/npy"},
		never: append([]string{"./...", "os", "os/...", "sync", "sync/..."}, append(network, chance...)...), except: []string{"./internal/fault"},
		why: "pixels and samples are a function of a file's bytes and what is wanted of them: whoever decodes one gets the same",
	},
	{
		of:    []string{"./internal/rpc"},
		never: []string{"./..."}, except: []string{"./internal/fault", "./internal/regular", "./internal/proto", "./internal/proto/state"},
		why: "transport holds no policy of a role",
	},
	{
		of:    []string{"./internal/telemetry"},
		never: []string{"*"}, except: []string{"std"},
		why: "roles import it: names of metrics and spans come without what sends them",
	},
	{
		of:    []string{"./internal/telemetry/export"},
		never: []string{"./..."}, except: []string{"./internal/telemetry", "./internal/fault", "./internal/regular", "./internal/rpc", "./internal/proto/..."},
		why: "it shows a board, and knows no role",
	},
	{
		of:    append([]string{"./.", "./internal/service", "./internal/trainer", "./internal/reference", "./jobspec", "./balance", "./internal/rpc"}, roles...),
		never: []string{"./internal/telemetry/export", "go.opentelemetry.io/...", "github.com/prometheus/..."}, direct: true,
		why: "OpenTelemetry and Prometheus are behind the board: what measures, and what links the client, does without them",
	},
	{
		of:    append([]string{"./client", "./jobspec", "./balance", "./planner/...", "./internal/constructor/deliver", "./internal/constructor/assemble", "./internal/sourceloader/order", "./internal/sourceloader/transform/...", "./internal/engine/..."}, "./internal/planner/control", "./internal/planner/plan"),
		never: []string{"./internal/telemetry"},
		why:   "what decides gives its values in its snapshots: who shows them is not its business",
	},
	{
		of:    []string{"./internal/failpoint"},
		never: append([]string{"./..."}, network...), except: []string{"./internal/fault"},
		why: "a site is in the way of every role: without the tag nothing of it may be left",
	},
	{
		of:    []string{"./internal/handover"},
		never: []string{"./..."}, except: []string{"./internal/fault", "./internal/regular", "./internal/proto/...", "./internal/rpc", "./internal/samples"},
		why: "the way to a loader knows neither its ends nor what goes along it",
	},
	{
		of:    []string{"./internal/proto", "./internal/proto/state"},
		never: []string{"./..."}, except: []string{"./internal/proto/state"},
		why: "roles meet in the messages: the messages know none of them",
	},
	{
		of:    []string{"./internal/reference"},
		never: append([]string{"./planner/...", "./internal/planner/...", "./internal/sourceloader", "./internal/constructor/...", "./client", "./internal/checkpoint", "./internal/...", "sync", "sync/..."}, chance...),
		except: []string{
			"./planner/strategy", "./planner/dgraph", "./planner/mesh", // for strategies that a program registered, which are inputs of a job
			"./jobspec", "./internal/planner/mix", "./internal/planner/change", "./planner/cost", "./internal/sourceloader/store", "./internal/sourceloader/format", "./internal/sourceloader/order",
			"./internal/sourceloader/transform/...", "./internal/sourceloader/tokenize", "./internal/batch", "./internal/fault", "./internal/regular",
		},
		direct: true,
		why:    "the reference is the specification: it shares the pure leaves with the service, and no code that it has to check",
	},
	{
		of:    []string{"./internal/reference"},
		never: append([]string{"./internal/planner", "./internal/planner/plan", "./internal/sourceloader", "./internal/constructor/...", "./internal/rpc"}, network...), except: []string{"net/url", "net/netip"},
		why: "not through others either",
	},
	{
		of:     []string{"./internal/preview"},
		never:  []string{"./internal/constructor/...", "./client", "./internal/service", "./internal/trainer", "./internal/reference", "./internal/rpc", "google.golang.org/grpc", "google.golang.org/grpc/...", "net", "net/..."},
		except: []string{"./internal/constructor/assemble"}, direct: true,
		why: "it plans with the planner's own code and reads with the loader's, and neither serves nor is served",
	},
	{
		of:    []string{"./internal/prepare"},
		never: append([]string{"./...", "time"}, network...), direct: true,
		except: []string{"./internal/fault", "./internal/regular", "./internal/didyoumean", "./internal/sourceloader", "./internal/sourceloader/...", "./jobspec"},
		why:    "shards are a function of files and steps: they are read with the loader's own code, and no plan, service or clock has a part in them",
	},
	{
		of:    []string{"./internal/preview/page"},
		never: []string{"./..."}, except: []string{"./internal/preview"}, direct: true,
		why: "a page shows what the report says, and computes nothing that could differ from it",
	},
	{
		of:    []string{"./internal/trainer"},
		never: []string{"./planner/...", "./internal/planner/...", "./internal/sourceloader/...", "./internal/constructor", "./internal/checkpoint"}, except: []string{"./jobspec", "./internal/planner/change", "./planner/mesh"},
		why: "the built-in trainer checks the service from outside, through the client",
	},
	{
		of:    append([]string{"./internal/proto", "./balance", "./internal/checkpoint", "./jobspec", "./internal/rpc"}, roles...),
		never: wiring,
		why:   "imports run one way: the wiring knows the roles, the roles never know who started them",
	},
	{
		of:     []string{"./..."},
		never:  []string{"./internal/testdata", "./internal/checkpoint/logtest", "./internal/object/objecttest", "./internal/sourceloader/format/formattest", "./internal/sourceloader/store/storetest"},
		except: []string{}, direct: true,
		why: "helpers of tests stay in tests",
	},
	{
		of:    []string{"./..."},
		never: []string{"testing", "testing/..."}, direct: true,
		why: "helpers of tests stay in tests",
	},
	{
		of:    append([]string{"./internal/proto", "./balance", "./internal/checkpoint", "./jobspec", "./internal/cli", "./cmd/...", "./internal/service", "./internal/trainer"}, roles...),
		never: []string{"math/rand", "math/rand/v2", "crypto/rand"}, direct: true,
		why: "the only randomness is keyed by the job's seed (sourceloader/order)",
	},
	{
		of:    []string{"./..."},
		never: []string{"unsafe"}, direct: true,
		why: "memory is viewed as something else in five places, each with tests of its bounds",
	},
	{
		of:    []string{"./..."},
		never: []string{"log", "github.com/pkg/errors", "golang.org/x/exp/...", "gopkg.in/yaml.v3", "io/ioutil"}, direct: true,
		why: "one way for each thing: slog, passed in; errors of the standard library; one YAML reader",
	},
}

// exempt are the packages that a rule about everyone ("./...") leaves out.
var exempt = map[string][]string{
	"./internal/testdata":                       {"testing"},                        // a helper of tests
	"./internal/checkpoint/logtest":             {"testing"},                        // the conformance suite of logs
	"./internal/object/objecttest":              {"testing"},                        // the conformance suite of object stores
	"./internal/sourceloader/format/formattest": {"testing", "./internal/testdata"}, // the conformance suite of formats
	"./internal/sourceloader/store/storetest":   {"testing"},                        // the conformance suite of stores
	"./bench":                                {"./internal/testdata"}, // measures on the same data as the tests
	"./internal/proto":                       {"unsafe"},              // generated
	"./internal/proto/state":                 {"unsafe"},              // generated
	"./internal/batch":                       {"unsafe"},              // tokens as bytes, for digests
	"./internal/samples":                     {"unsafe"},              // tokens as bytes, for Arrow
	"./internal/sourceloader/format/parquet": {"unsafe"},              // numbers as the bytes of a file
	"./internal/rpc":                         {"unsafe"},              // addresses of bodies, for alignment
	"./internal/worker":                      {"unsafe"},              // whole columns as bytes, for workers
}
