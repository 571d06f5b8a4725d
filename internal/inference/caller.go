package inference

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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
}

var _ transform.Caller = (*Caller)(nil)

// batches is how many of them may wait for a server at a time: each may be several requests.
const batches = 4

// Open returns the function of a step whose paths are resolved, for a source. log hears of a server that
// does not answer. Errors are of class fault.User. Nothing is sent before it is called.
func Open(step *jobspec.Call, pages Pages, log *slog.Logger) (*transform.Function, error) {
	c := &Caller{rows: step.Rows}
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
	digest, err := meaning(step)
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

// Close ends connections that nobody uses.
func (c *Caller) Close() { c.server.client.CloseIdleConnections() }

// keepTime is how long a call that is given up may take to write what was answered: a loader that
// has some seconds to end.
const keepTime = 3 * time.Second

// meaning is the digest of what decides an answer: not where the server is, nor how it is asked.
func meaning(step *jobspec.Call) ([32]byte, error) {
	var form any
	if err := json.Unmarshal([]byte(step.Request), &form); err != nil {
		return [32]byte{}, fault.Userf("request: %w", err)
	}
	data, err := encode(map[string]any{"request": form, "give": step.Give, "version": step.Version})
	return sha256.Sum256(append([]byte("millrace call\n"), data...)), err
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
	all, pages, err := c.look(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	if err := c.ask(ctx, all, pages); err != nil {
		return nil, nil, err
	}
	return c.records(in, all)
}

// look finds out what is known of records.
func (c *Caller) look(ctx context.Context, in *format.Batch) (all []asked, pages []*page, err error) {
	file, _ := format.FileOf(ctx)
	all = make([]asked, in.Len())
	last := ""
	var rec format.Record
	for i := range all {
		in.Record(i, &rec)
		if name := c.ledger.pages.name(file, rec.Row); name != last {
			p, err := c.ledger.page(ctx, name)
			if err != nil {
				return nil, nil, err
			}
			pages, last = append(pages, p), name
		}
		a := &all[i]
		a.page, a.row = pages[len(pages)-1], rec.Row
		if a.say, a.bad = c.request.row(rec.Values); a.bad != nil {
			continue
		}
		if a.key, err = key(rec.Values); err != nil {
			return nil, nil, err
		}
	}
	return all, pages, nil
}

// key is the name of a record in the ledger: its columns, as the form of the request is that of the pages.
func key(values []format.Value) (string, error) {
	all := make([]any, len(values))
	for i := range values {
		var err error
		if all[i], err = jsonValue(&values[i]); err != nil {
			return "", err
		}
	}
	data, err := encode(all)
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:16]), err
}

// ask has the server answer what no page knows, and writes what it said.
func (c *Caller) ask(ctx context.Context, all []asked, pages []*page) error {
	var mu sync.Mutex // guards found
	found := map[*page]map[string]outcome{}
	work, within := errgroup.WithContext(ctx)
	work.SetLimit(cap(c.server.slots))
	for todo := unknown(all); len(todo) > 0; {
		part := todo[:min(c.rows, len(todo))]
		todo = todo[len(part):]
		work.Go(func() error {
			outcomes, err := c.part(within, part)
			mu.Lock()
			defer mu.Unlock()
			for i, o := range outcomes {
				if found[part[i].page] == nil {
					found[part[i].page] = map[string]outcome{}
				}
				found[part[i].page][part[i].key] = o
			}
			return err
		})
	}
	err := work.Wait()
	keeping := ctx
	if ctx.Err() != nil {
		var stop context.CancelFunc
		keeping, stop = context.WithTimeout(context.WithoutCancel(ctx), keepTime)
		defer stop()
	}
	for _, p := range pages { // what was answered is kept, whatever else went wrong
		err = errors.Join(err, p.add(keeping, found[p]))
	}
	return err
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
		if _, known := a.page.known[a.key]; !known {
			todo = append(todo, a)
		}
	}
	return todo
}

// part asks about some records, about fewer at a time if the server refuses them together. Those that it
// returns are the first of them, all unless there is an error.
func (c *Caller) part(ctx context.Context, part []asked) ([]outcome, error) {
	rows := make([]any, len(part))
	for i := range part {
		rows[i] = part[i].say
	}
	body, err := c.request.body(rows)
	if err != nil {
		return nil, err
	}
	answer, err := c.server.post(ctx, body)
	var outcomes []outcome
	if err == nil {
		if outcomes, err = read(c.fields, answer, len(part)); err == nil {
			return outcomes, nil
		}
	}
	refused := (*refusal)(nil)
	switch {
	case fault.ClassOf(err) == fault.Lost || ctx.Err() != nil:
		return nil, err
	case len(part) > 1 && (errors.As(err, &refused) || answer != nil):
		half := len(part) / 2
		if outcomes, err = c.part(ctx, part[:half]); err != nil {
			return outcomes, err
		}
		more, err := c.part(ctx, part[half:])
		return append(outcomes, more...), err
	case errors.As(err, &refused):
		return []outcome{{Bad: "the model server refuses it: " + refused.said}}, nil
	}
	return nil, fault.Userf("row %d: %w", part[0].row, err)
}

// records are the answers as records, those without one being bad.
func (c *Caller) records(in *format.Batch, all []asked) (*format.Batch, []int32, error) {
	out, from := &format.Batch{}, make([]int32, len(all))
	for i := range all {
		rec := format.Record{Err: all[i].bad}
		rec.Row, rec.Part = in.Key(i)
		from[i] = int32(i)
		if rec.Err == nil {
			if err := c.values(all[i].page.known[all[i].key], &rec); err != nil {
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
		if wrong := c.fields[i].value(o.Values[i], &rec.Values[i]); wrong != "" {
			return fault.Userf("an entry of the ledger is not of this step: %s", wrong)
		}
	}
	return nil
}
