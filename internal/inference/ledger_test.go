package inference

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/object/objecttest"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// pairStep asks about two columns under different keys.
func pairStep(url, answers string) *jobspec.Call {
	s := step(url, answers, 1)
	s.Request = `{"rejected": "{rejected}", "chosen": "{chosen}", "inputs": ["{chosen}>{rejected}"]}`
	return s
}

// TestKeys: a record has the same key in every process, whatever the order in which Go goes through a map. Those of one column
// are those of the first version, whose ledgers stay good.
func TestKeys(t *testing.T) {
	one := open(t, step("http://x", t.TempDir(), 1))
	record, err := key([]any{"text 0"})
	if got := fmt.Sprintf("%x %s", one.Digest[:8], record); err != nil || got != "b260533e87328271 3226c95cec6effccb14d70e75b797983" {
		t.Errorf("a record of one column is %s, %v", got, err)
	}
	columns := []string{"chosen", "rejected"}
	for range 50 {
		f := open(t, pairStep("http://x", t.TempDir()))
		var names []string
		for _, c := range f.In {
			names = append(names, c.Name)
		}
		if got := fmt.Sprintf("%x", f.Digest[:8]); !reflect.DeepEqual(names, columns) || got != "8b377b108c835220" {
			t.Fatalf("the columns are %q of form %s", names, got)
		}
	}
}

// TestSwapped: of two records whose columns are swapped each has its own answer, whoever asks.
func TestSwapped(t *testing.T) {
	m := newModel(t, func(w http.ResponseWriter, inputs []string) {
		fmt.Fprintf(w, `{"data": [{"score": 1, "text": %q}]}`, inputs[0])
	})
	s := pairStep(m.URL, t.TempDir())
	for range 20 {
		f, in := open(t, s), &format.Batch{}
		for row, value := range []map[string]string{{"chosen": "good", "rejected": "bad"}, {"chosen": "bad", "rejected": "good"}} {
			rec := format.Record{Row: int64(row)}
			for _, c := range f.In {
				rec.Values = append(rec.Values, format.Value{Kind: format.String, Bytes: []byte(value[c.Name])})
			}
			in.Add(&rec)
		}
		if got := answers(t, f, in); !reflect.DeepEqual(got, []string{"1 good>bad", "1 bad>good"}) {
			t.Fatalf("the answers are %q", got)
		}
	}
	if m.rows.Load() != 2 {
		t.Errorf("2 records were asked about %d times", m.rows.Load())
	}
}

// counted is a store that counts what it is asked.
type counted struct {
	object.Memory
	lists, gets atomic.Int64
}

func (c *counted) List(ctx context.Context, prefix, after string) ([]object.Info, error) {
	c.lists.Add(1)
	return c.Memory.List(ctx, prefix, after)
}

func (c *counted) Get(ctx context.Context, key string, r object.Range) ([]byte, error) {
	c.gets.Add(1)
	return c.Memory.Get(ctx, key, r)
}

// TestReadOnce: who asks about one record at a time, as the reference reader does, reads each page once.
func TestReadOnce(t *testing.T) {
	store, m := &counted{}, newModel(t, nil)
	opened := func() *Caller {
		c := open(t, step(m.URL, t.TempDir(), 32)).Caller.(*Caller)
		c.ledger.open = func() (object.Store, error) { return store, nil }
		return c
	}
	const pages = 40
	for page := range int64(pages) {
		if _, _, err := opened().Call(t.Context(), batch(256*page, 256*page+20)); err != nil {
			t.Fatal(err)
		}
	}
	store.lists.Store(0)
	store.gets.Store(0)
	c := opened()
	for page := range int64(pages) {
		for row := range int64(20) {
			if _, _, err := c.Call(t.Context(), batch(256*page+row, 256*page+row+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if store.lists.Load() != pages || store.gets.Load() != pages || len(c.ledger.kept) > keptPages {
		t.Errorf("%d pages of an entry each were listed %d times, %d entries were read, %d pages are kept", pages, store.lists.Load(), store.gets.Load(), len(c.ledger.kept))
	}
	c.ledger.kept[1].bytes.Add(keptBytes)
	if _, err := c.ledger.page("another"); err != nil || len(c.ledger.kept) != 2 {
		t.Errorf("%v, %d pages are kept, of which one is too large", err, len(c.ledger.kept))
	}
}

// TestShared: calls at the same time of one function have the answers that were written first.
func TestShared(t *testing.T) {
	m, dir := newModel(t, nil), t.TempDir()
	f := open(t, step(m.URL, dir, 3))
	got := make([][]string, 6)
	var work sync.WaitGroup
	for i := range got {
		work.Go(func() { got[i] = answers(t, f, batch(0, 100)) })
	}
	work.Wait()
	for i, a := range append(got, answers(t, open(t, step(m.URL, dir, 3)), batch(0, 100))) {
		if !reflect.DeepEqual(a, got[0]) {
			t.Errorf("call %d has other answers", i)
		}
	}
}

// TestKilled: what is in the ledger while a call still asks, which is what a process leaves that is killed: all but some answers, in few entries.
func TestKilled(t *testing.T) {
	for _, c := range []struct {
		every            time.Duration
		asked            int64 // texts that are answered before the server stands still
		least, mostFiles int
	}{{time.Hour, 150, 2 * keepMost, 3}, {0, 5, 5, 5}} {
		stop, all := make(chan struct{}), make(chan struct{})
		var n atomic.Int64
		m := newModel(t, func(w http.ResponseWriter, inputs []string) {
			switch k := n.Add(1); {
			case k > c.asked:
				<-stop
			case k == c.asked:
				defer close(all)
			}
			score(w, inputs)
		})
		s := step(m.URL, t.TempDir(), 1)
		f := open(t, s)
		f.Caller.(*Caller).every = c.every
		ended := make(chan error)
		go func() {
			_, _, err := f.Caller.Call(format.WithFile(t.Context(), 3), batch(0, 400))
			ended <- err
		}()
		<-all
		kept := func() (kept, entries int) {
			files, _ := filepath.Glob(s.Answers + "/*/*/*/*.json")
			reader := open(t, s).Caller.(*Caller)
			for _, p := range []string{pagesOf.name(3, 0), pagesOf.name(3, 256)} {
				page, err := reader.ledger.page(p)
				if err == nil {
					err = page.read(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				kept += len(page.known)
			}
			return kept, len(files)
		}
		got, entries := kept()
		for until := time.Now().Add(10 * time.Second); got < c.least && time.Now().Before(until); got, entries = kept() {
			time.Sleep(time.Millisecond) // the last answers are on their way
		}
		if got < c.least || entries > c.mostFiles {
			t.Errorf("of %d answers %d are in %d entries; want %d at the least, in %d", c.asked, got, entries, c.least, c.mostFiles)
		}
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestFirstWrong: the error of a call is that of its first wrong record, whichever fails first, and what was answered before
// is kept.
func TestFirstWrong(t *testing.T) {
	for range 5 {
		var n atomic.Int64
		var once sync.Once
		failed := make(chan struct{})
		m := newModel(t, func(w http.ResponseWriter, inputs []string) {
			id := n.Add(1)
			switch k := m0(inputs[0]); {
			case k < 5:
				score(w, inputs)
				return
			case k == 5: // it is the last one to fail
				<-failed
			default:
				defer once.Do(func() { close(failed) })
			}
			http.Error(w, fmt.Sprintf("request_id %d", id), http.StatusNotFound)
		})
		s := step(m.URL, t.TempDir(), 1)
		s.Parallel = 8
		_, _, err := open(t, s).Caller.Call(format.WithFile(t.Context(), 3), batch(0, 40))
		if fault.ClassOf(err) != fault.User || !strings.HasPrefix(fmt.Sprint(err), "row 10: ") {
			t.Fatalf("texts from the fifth on, which is in row 10, have no answer: %v", err)
		}
		if n.Load() >= 20 {
			t.Errorf("%d requests of 20 were sent, though those from the fifth on fail", n.Load())
		}
		m.Close()
		answers(t, open(t, s), batch(0, 10)) // they are known
	}
}

// TestPlaces: records are known where they lay when they were asked about, and asked about again in a file of another number.
func TestPlaces(t *testing.T) {
	m := newModel(t, nil)
	f := open(t, step(m.URL, t.TempDir(), 1))
	for i, file := range []int{3, 3, 4, 3} {
		if _, _, err := f.Caller.Call(format.WithFile(t.Context(), file), batch(0, 20)); err != nil {
			t.Fatal(err)
		}
		if want := []int64{10, 10, 20, 20}[i]; m.rows.Load() != want {
			t.Errorf("after call %d %d texts were asked about, want %d", i, m.rows.Load(), want)
		}
	}
}

// TestEarlierCounts: of two answers to a record that of the earlier entry counts.
func TestEarlierCounts(t *testing.T) {
	store := &object.Memory{}
	for i, bad := range []string{"a", "b"} {
		data, err := encodeEntry(map[string]outcome{"x": {Bad: bad}})
		if err == nil {
			err = store.Put(t.Context(), fmt.Sprintf("p/q/%06d.json", i+1), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l := &Ledger{open: func() (object.Store, error) { return store, nil }, prefix: "p"}
	p, err := l.page("q")
	if err == nil {
		err = p.add(t.Context(), map[string]outcome{"x": {Bad: "c"}})
	}
	if got, _ := p.answer("x"); err != nil || got.Bad != "a" || p.entries != 2 {
		t.Errorf("%q of %d entries, %v", got.Bad, p.entries, err)
	}
}

// TestDenied: credentials for the ledger that expire while a job runs are waited with, those that never were good are not.
func TestDenied(t *testing.T) {
	fake := objecttest.NewFake(t)
	s := step(newModel(t, nil).URL, strings.Replace(fake.URL, "s3://bucket", "s3://bucket/answers", 1), 1)
	f := open(t, s)
	call := func(from int64) error {
		_, _, err := f.Caller.Call(format.WithFile(t.Context(), 3), batch(from, from+4))
		return err
	}
	fake.Deny.Store(1)
	if err := call(0); fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "AWS_ACCESS_KEY_ID") {
		t.Errorf("denied at the start: class %v, %v", fault.ClassOf(err), err)
	}
	if err := call(0); err != nil {
		t.Fatal(err)
	}
	fake.Deny.Store(3)
	if err := call(256); err != nil || fake.Deny.Load() > 0 {
		t.Errorf("a new page, denied for a while: %v", err)
	}
	s.URL = newModel(t, func(w http.ResponseWriter, inputs []string) {
		fake.Deny.Store(2) // of the request that writes the answer
		score(w, inputs)
	}).URL
	f.Caller.(*Caller).server = open(t, s).Caller.(*Caller).server
	if err := call(512); err != nil || fake.Deny.Load() > 0 {
		t.Errorf("writing an answer, denied for a while: %v", err)
	}
}
