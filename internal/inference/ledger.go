package inference

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// Ledger keeps the first answer to each record, in an object store that all loaders of a job
// share. It is safe for concurrent use, by any number of processes.
//
// Records that lie near each other in a file share a page, which grows by entries: objects PAGE/000001
// and so on, each written once. What an earlier entry says counts, so that of two who ask at
// the same time both go on with the same answers. A record is found by the digest of what was asked
// about it, so that the place of a page decides only how fast it is found.
type Ledger struct {
	open   func() (object.Store, error) // the same one each time
	prefix string                       // of the pages of one form of requests
	pages  Pages
}

// Pages says which records share a page of a ledger: some hundred of them, since an object for each
// would be many, and one for a file much to read for a few. Whoever asks about a source has to
// say the same, or asks again.
type Pages struct {
	Files int   // in a row, that have a page together
	Rows  int64 // values of format.Record.Row, likewise
}

// name is that of the page of a row.
func (p Pages) name(file int, row int64) string {
	return fmt.Sprintf("%06d/%012d", file/max(p.Files, 1), row/max(p.Rows, 1))
}

// page is what is known of the records of one.
type page struct {
	store   object.Store
	name    string
	entries int // read so far
	known   map[string]outcome
}

// page opens a page by its name.
func (l *Ledger) page(ctx context.Context, name string) (*page, error) {
	store, err := l.open()
	if err != nil {
		return nil, fault.As(fault.ClassOf(err), fmt.Errorf("answers: %w", err))
	}
	p := &page{store: store, name: l.prefix + "/" + name, known: map[string]outcome{}}
	return p, p.read(ctx)
}

// read takes in the entries that were written since.
func (p *page) read(ctx context.Context) error {
	after := ""
	if p.entries > 0 {
		after = p.entry(p.entries)
	}
	all, err := p.store.List(ctx, p.name+"/", after)
	if err != nil {
		return err
	}
	for _, info := range all {
		number, err := strconv.Atoi(strings.TrimSuffix(path.Base(info.Key), ".json"))
		if err != nil || info.Key != p.entry(number) {
			continue // not of a ledger
		}
		if number != p.entries+1 {
			return fault.Userf("%s: entry %s of the ledger is missing, and %s is there: restore it, or name another folder for answers", p.store, p.entry(p.entries+1), info.Key)
		}
		if err := p.take(ctx, info.Key); err != nil {
			return err
		}
		p.entries = number
	}
	return nil
}

func (p *page) entry(number int) string { return fmt.Sprintf("%s/%06d.json", p.name, number) }

// take takes in an entry: what is known stays.
func (p *page) take(ctx context.Context, key string) error {
	data, err := p.store.Get(ctx, key, object.Whole)
	if err != nil {
		return err
	}
	answers, err := decodeEntry(data)
	if err != nil {
		return fault.Userf("%s: entry %s of the ledger is damaged (%w): restore it, or name another folder for answers", p.store, key, err)
	}
	for record, o := range answers {
		if _, ok := p.known[record]; !ok {
			p.known[record] = o
		}
	}
	return nil
}

// add writes answers. On return known has all of the records, be it with what another wrote
// meanwhile.
func (p *page) add(ctx context.Context, answers map[string]outcome) error {
	for len(answers) > 0 {
		data, err := encodeEntry(answers)
		if err != nil {
			return err
		}
		err = p.store.PutIfAbsent(ctx, p.entry(p.entries+1), data)
		if err == nil {
			p.entries++
			for record, o := range answers {
				p.known[record] = o
			}
			return nil
		}
		if !errors.Is(err, object.ErrExists) {
			return err
		}
		if err := p.read(ctx); err != nil {
			return err
		}
		for record := range answers {
			if _, ok := p.known[record]; ok {
				delete(answers, record)
			}
		}
	}
	return nil
}

// entry is an object of a page.
type entry struct {
	Sum     string          `json:"sha256"`  // of answers as they stand here, in hex
	Answers json.RawMessage `json:"answers"` // map[string]outcome
}

func encodeEntry(answers map[string]outcome) ([]byte, error) {
	data, err := json.Marshal(answers)
	if err != nil {
		return nil, err
	}
	data, err = json.Marshal(entry{sum(data), data})
	return append(data, '\n'), err
}

func decodeEntry(data []byte) (answers map[string]outcome, err error) {
	var e entry
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, err
	}
	if sum(e.Answers) != e.Sum {
		return nil, errors.New("its checksum is another one")
	}
	return answers, json.Unmarshal(e.Answers, &answers)
}

func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}
