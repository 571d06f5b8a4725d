package jobspec

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Python puts records through a function in a worker process.
type Python struct {
	Function    string // "module:name"
	Path        string // folder that the module is imported from
	Interpreter string // a name found in PATH, or a path
	Timeout     int    // seconds for one batch, after which its worker is killed; 0 = 60, and no row is left out for it
	Memory      int64  // bytes of a worker, beyond which it is killed; 0 = 2 GiB, and no row is left out for it
	BatchBytes  int64  // bytes of records handed over together
	Network     bool   // the function may use the network
	Check       string // "" or twice: run each batch twice, and compare
}

var pythonOperator = Operator{
	Name:    "python",
	Doc:     "Puts the record through a Python function, which may change it, leave it out, or make several of it. Before the tokens are made.",
	Example: "[{python: 'cleaning:clean'}, {tokenize: bytes}]",
	Takes:   []string{"the columns that the function takes"}, Gives: []string{"the columns that it gives"},
	Records: Multiplies, Worker: true,
	Rules: "Before the tokens are made, and before `chat`. The function is named as `module:name`.",

	step: (*Python)(nil), value: field{kind: objectKind, object: &pythonObject}, repeat: true, renews: []string{"text"},
	place: func(has func(...string) bool) (message, valid string) {
		if message, valid := beforeTokens(has); message != "" {
			return message, valid
		}
		if has("chat") {
			return "comes after chat", "move it before, where it may change the messages"
		}
		return "", ""
	},
}

var pythonObject = object{title: "python", short: "function", fields: []field{
	{key: "function", name: "Function", kind: textKind, required: true,
		doc: "The function, as `module:name`. Its code is part of the data's manifest: other code is another job."},
	{key: "path", name: "Path", kind: textKind, def: ".",
		doc: "The folder that the module is imported from, relative to the spec's folder."},
	{key: "interpreter", name: "Interpreter", kind: textKind, def: "python3", free: freeMachine,
		doc: "The Python to run: a name that is found in `PATH`, or a path, relative to the spec's folder, such as `.venv/bin/python`."},
	{key: "timeout", name: "Timeout", kind: countKind, min: 1, max: 86_400, empty: true, auto: "60, and a row that takes longer stops the job whatever `bad_records` says",
		doc: "Seconds that a batch may take, after which its worker is killed and the batch is tried in smaller ones. A row that takes longer alone is a bad record."},
	{key: "memory", name: "Memory", kind: bytesKind, min: 1 << 20, max: maxBytes, empty: true, auto: "2GiB, and a row that takes more stops the job whatever `bad_records` says",
		doc: "Memory of one worker, beyond which it is killed and the batch is tried in smaller ones. A row that takes more alone in a new worker is a bad record."},
	{key: "batch_bytes", name: "BatchBytes", kind: bytesKind, def: int64(1 << 20), min: 1, max: 1 << 30, free: freeBatch,
		doc: "Records that are handed to a worker together."},
	{key: "network", name: "Network", kind: flagKind, empty: true, auto: "`false`",
		doc: "Whether the function may use the network. Without it there is none where the kernel can take it away: what comes out of a record may depend on nothing else."},
	{key: "check", name: "Check", kind: textKind, empty: true, enum: []string{"twice"}, auto: "once", free: freeCheck,
		doc: "`twice` runs every batch a second time, cut elsewhere, and stops the job if something else comes out: a search for functions that depend on the time, on chance or on other records. It takes twice the time."},
}}

// Operator implements Transform.
func (*Python) Operator() string { return pythonOperator.Name }

// Words implements Transform.
func (p *Python) Words() string { return "through the Python function " + p.Function }

// functionName is a function in a module: names with dots, a colon, names with dots.
var functionName = regexp.MustCompile(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*:[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`)

func (p *Python) check(c *checker, at string) {
	if at += ".function"; c.sound(at) && !functionName.MatchString(p.Function) {
		c.error(at, quote(p.Function)+" names no function of a module", "valid is module:name, such as cleaning:strip for def strip in cleaning.py")
	}
}

// resolve joins paths. An interpreter without a slash is found in PATH.
func (p *Python) resolve(j *Job) Transform {
	own := *p
	own.Path = j.Resolve(p.Path)
	if strings.Contains(p.Interpreter, "/") {
		own.Interpreter = j.Resolve(p.Interpreter)
	}
	return &own
}

// locate looks for the folder of the function.
func (p *Python) locate(r *report, at string) {
	at += ".path"
	if info, err := os.Stat(p.Path); r.sound(at) && (err != nil || !info.IsDir()) {
		r.error(at, "there is no folder "+strconv.Quote(p.Path), "name the folder that holds the module of "+p.Function)
	}
}

// code is the folders of the module and of the interpreter, which itself is often a link to
// one of the system.
func (p *Python) code() []string {
	folders := []string{absolute(p.Path)}
	if strings.Contains(p.Interpreter, "/") {
		folders = append(folders, absolute(filepath.Dir(p.Interpreter)))
	}
	return folders
}
