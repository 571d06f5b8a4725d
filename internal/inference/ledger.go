package inference

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// Ledger keeps the first answer to each record, in an object store that all loaders of a job
// share. It is safe for concurrent use, by any number of processes.
//
// Records that lie near each other in a file share a page, which grows by entries: objects PAGE/000001
// and so on, each written once. What an earlier entry says counts, so that of two who ask at
// the same time both go on with the same answers. A record is found by the digest of what was asked
// about it, in the page of its own place: one that lies elsewhere in another manifest is asked about again.
type Ledger struct {
	open   func() (object.Store, error) // the same one each time
	prefix string                       // of the pages of one form of requests
	pages  Pages
	mu     sync.Mutex // guards kept
	kept   []*page    // the last ones that were asked for, the last one first
}

// How many pages of a ledger are kept for the next call, and how many bytes of answers: records come one after the
// other, and to read a page for each of its records would take the square of its length.
const (
	keptPages = 16
	keptBytes = 16 << 20
)

// Pages says which records share a page of a ledger: some hundred of them, since an object for each
// would be many, and one for a file much to read for a few. Whoever asks about a source has to
// say the same, or asks again. Files go by their numbers: one that is added before others moves their records to other pages.
type Pages struct {
	Files int   // in a row, that have a page together
	Rows  int64 // values of format.Record.Row, likewise
}

// name is that of the page of a row.
func (p Pages) name(file int, row int64) string {
	return fmt.Sprintf("%06d/%012d", file/max(p.Files, 1), row/max(p.Rows, 1))
}

// page is what is known of the records of one. It is safe for concurrent use.
type page struct {
	store   object.Store
	name    string
	bytes   atomic.Int64 // about what known takes
	mu      sync.Mutex   // guards the fields below, also while entries are read and written
	entries int          // read so far
	known   map[string]outcome
}

// page returns a page by its name, with what was read of it before.
func (l *Ledger) page(name string) (*page, error) {
	store, err := l.open()
	if err != nil {
		return nil, fault.As(fault.ClassOf(err), fmt.Errorf("answers: %w", err))
	}
	name = l.prefix + "/" + name
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &page{store: store, name: name, known: map[string]outcome{}}
	if at := slices.IndexFunc(l.kept, func(p *page) bool { return p.name == name }); at >= 0 {
		p = l.kept[at]
		l.kept = slices.Delete(l.kept, at, at+1)
	}
	l.kept = slices.Insert(l.kept, 0, p)
	bytes := int64(0)
	for i := range l.kept {
		if bytes += l.kept[i].bytes.Load(); i > 0 && (i >= keptPages || bytes > keptBytes) {
			l.kept = slices.Delete(l.kept, i, len(l.kept))
			break
		}
	}
	return p, nil
}

// answer is what is known of a record. It stays, as an entry never changes.
func (p *page) answer(record string) (o outcome, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, known = p.known[record]
	return o, known
}

// read takes in the entries that were written since.
func (p *page) read(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readOn(ctx)
}

// readOn is read for whoever has locked the page.
func (p *page) readOn(ctx context.Context) error {
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
		answers, err := p.answers(ctx, info.Key)
		if err != nil {
			return err
		}
		p.take(answers)
		p.entries = number
	}
	return nil
}

func (p *page) entry(number int) string { return fmt.Sprintf("%s/%06d.json", p.name, number) }

// answers reads an entry, a second time before it is said to be damaged.
func (p *page) answers(ctx context.Context, key string) (map[string]outcome, error) {
	for again := false; ; again = true {
		data, err := p.store.Get(ctx, key, object.Whole)
		if err != nil {
			return nil, err
		}
		answers, err := decodeEntry(data)
		if err == nil {
			return answers, nil
		}
		if again {
			return nil, fault.Userf("%s: entry %s of the ledger is damaged (%w): restore it, or name another folder for answers", p.store, key, err)
		}
	}
}

// take takes answers in: what is known stays.
func (p *page) take(answers map[string]outcome) {
	for record, o := range answers {
		if _, ok := p.known[record]; ok {
			continue
		}
		p.known[record] = o
		size := len(record) + len(o.Bad) + 100 // some for the map
		for _, v := range o.Values {
			size += len(v)
		}
		p.bytes.Add(int64(size))
	}
}

// add writes answers but for those that are known, and takes them out of the map. On return known has all of the
// records, be it with what another wrote meanwhile; after an error what was not written is in the map.
func (p *page) add(ctx context.Context, answers map[string]outcome) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		maps.DeleteFunc(answers, func(record string, _ outcome) bool { _, known := p.known[record]; return known })
		if len(answers) == 0 {
			return nil
		}
		data, err := encodeEntry(answers)
		if err != nil {
			return err
		}
		switch err := p.store.PutIfAbsent(ctx, p.entry(p.entries+1), data); {
		case err == nil:
			p.entries++
			p.take(answers)
		case !errors.Is(err, object.ErrExists):
			return err
		default:
			if err := p.readOn(ctx); err != nil {
				return err
			}
		}
	}
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
