package inference

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// Caller is the function of a call step. It is safe for concurrent use.
type Caller struct {
	request *request
	fields  []field
	rows    int // of a request
	server  *server
	ledger  *Ledger
	every   time.Duration // see keepEvery
}

var _ transform.Awaiting = (*Caller)(nil)

// batches is how many of them may wait for a server at a time: each may be several requests.
const batches = 4

// Open returns the function of a step whose paths are resolved, for a source. log hears of a server that
// does not answer. Errors are of class fault.User. Nothing is sent before it is called.
func Open(step *jobspec.Call, pages Pages, log *slog.Logger) (*transform.Function, error) {
	c := &Caller{rows: step.Rows, every: keepEvery}
	var err error
	if c.request, err = parseRequest(step.Request, step.Rows); err != nil {
		return nil, fault.Userf("request: %w", err)
	}
	if c.fields, err = parseFields(step.Give, step.Rows); err != nil {
		return nil, err
	}
	if c.server, err = newServer(step, log); err != nil {
		return nil, err
	}
	digest, err := meaning(step, len(c.request.columns))
	if err != nil {
		return nil, err
	}
	open := sync.OnceValues(func() (object.Store, error) { return openStore(step.Answers) })
	if strings.Contains(step.Answers, "://") { // a URL is checked at once; a folder is made when there is something to write
		if _, err := open(); err != nil {
			return nil, fault.Userf("answers: %w", err)
		}
	}
	c.ledger = &Ledger{open: open, prefix: hex.EncodeToString(digest[:8]), pages: pages}
	f := &transform.Function{Name: c.server.name, Kind: transform.MapFunction, Digest: digest, Caller: c, Pool: transform.Pool{Name: fmt.Sprintf("call %x", digest[:8]), Slots: min(step.Parallel, batches)}}
	for _, in := range c.request.columns {
		f.In = append(f.In, transform.Column{Name: in.path, Null: in.optional})
	}
	for _, out := range c.fields {
		f.Out = append(f.Out, transform.Column{Name: out.name, Kind: out.kind})
	}
	return f, nil
}

// openStore opens the store that a spec names, by a URL or as a folder. Nothing is sent.
func openStore(answers string) (object.Store, error) {
	if strings.Contains(answers, "://") {
		return object.Open(answers)
	}
	d, err := object.NewDirectory(answers)
	return object.Retry{Store: d}, err
}

// ForCommand has a server that never answers be waited for for seconds only, as somebody waits at a terminal. It comes before
// the first call.
func (c *Caller) ForCommand() { c.server.unheard = unheardTime }

// ForRun has a server that never answers end the job after as long as others are waited for, as somebody waits for the job
// at a terminal. It comes before the first call.
func (c *Caller) ForRun() { c.server.needed = true }

// Awaits implements transform.Awaiting.
func (c *Caller) Awaits() string { return c.server.awaits() }

// Close ends connections that nobody uses.
func (c *Caller) Close() { c.server.client.CloseIdleConnections() }

// meaning is the digest of what decides an answer: not where the server is, nor how it is asked. Its second form is that of
// requests with several columns, whose values had no order in the keys of the first, so that an answer may be another record's.
func meaning(step *jobspec.Call, columns int) ([32]byte, error) {
	version := "millrace call 2\n"
	if columns == 1 {
		version = "millrace call\n"
	}
	var form any
	if err := json.Unmarshal([]byte(step.Request), &form); err != nil {
		return [32]byte{}, fault.Userf("request: %w", err)
	}
	data, err := encode(map[string]any{"request": form, "give": step.Give, "version": step.Version})
	return sha256.Sum256(append([]byte(version), data...)), err
}

// asked is a record of a call.
type asked struct {
	key  string
	row  int64
	say  any // see request.row
	page *page
	bad  error // that nothing can be asked about it
}

// Call implements transform.Caller. What was answered is in the ledger on return, whatever the error.
func (c *Caller) Call(ctx context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	all, err := c.look(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range pagesFor(unknown(all)) {
		if err := p.read(ctx); err != nil {
			return nil, nil, err
		}
	}
	if err := c.ask(ctx, unknown(all)); err != nil {
		return nil, nil, err
	}
	return c.records(in, all)
}

// look finds the places of records in the ledger.
func (c *Caller) look(ctx context.Context, in *format.Batch) ([]asked, error) {
	file, _ := format.FileOf(ctx)
	all := make([]asked, in.Len())
	var p *page
	last := ""
	var rec format.Record
	for i := range all {
		in.Record(i, &rec)
		if name := c.ledger.pages.name(file, rec.Row); name != last {
			var err error
			if p, err = c.ledger.page(name); err != nil {
				return nil, err
			}
			last = name
		}
		a := &all[i]
		a.page, a.row = p, rec.Row
		values, err := c.request.values(rec.Values)
		if a.bad = err; err != nil {
			continue
		}
		if a.say, err = c.request.row(values); err != nil {
			return nil, err
		}
		if a.key, err = key(values); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// key is the name of a record in the ledger: the values of its columns, whose names and order the form of the request
// has, which is that of the pages.
func key(values []any) (string, error) {
	data, err := encode(values)
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:16]), err
}

// unknown are the records that no page has an answer to, each once.
func unknown(all []asked) (todo []asked) {
	type place struct {
		page *page
		key  string
	}
	seen := map[place]bool{}
	for _, a := range all {
		if a.bad != nil || seen[place{a.page, a.key}] {
			continue
		}
		seen[place{a.page, a.key}] = true
		if _, known := a.page.answer(a.key); !known {
			todo = append(todo, a)
		}
	}
	return todo
}

// pagesFor are the pages of records, in their order.
func pagesFor(all []asked) (pages []*page) {
	for _, a := range all {
		if n := len(pages); n == 0 || pages[n-1] != a.page {
			pages = append(pages, a.page)
		}
	}
	return pages
}

// records are the answers as records, those without one being bad.
func (c *Caller) records(in *format.Batch, all []asked) (*format.Batch, []int32, error) {
	out, from := &format.Batch{}, make([]int32, len(all))
	for i := range all {
		rec := format.Record{Err: all[i].bad}
		rec.Row, rec.Part = in.Key(i)
		from[i] = int32(i)
		if rec.Err == nil {
			o, _ := all[i].page.answer(all[i].key)
			if err := c.values(o, &rec); err != nil {
				return nil, nil, err
			}
		}
		out.Add(&rec)
	}
	return out, from, nil
}

// values puts an answer into a record.
func (c *Caller) values(o outcome, rec *format.Record) error {
	if o.Bad != "" {
		rec.Err = fault.Userf("%s", o.Bad)
		return nil
	}
	if len(o.Values) != len(c.fields) {
		return fault.Userf("an entry of the ledger has %d values of a record where %d are given: restore it, or name another folder for answers", len(o.Values), len(c.fields))
	}
	rec.Values = make([]format.Value, len(c.fields))
	for i := range c.fields {
		if !c.fields[i].value(o.Values[i], &rec.Values[i]) {
			return fault.Userf("an entry of the ledger is not of this step: %s", c.fields[i].wrong(string(o.Values[i])))
		}
	}
	return nil
}
