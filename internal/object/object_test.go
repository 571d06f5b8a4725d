package object_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/object/objecttest"
)

func TestMemory(t *testing.T) {
	objecttest.Run(t, func(*testing.T) object.Store { return &object.Memory{} })
}

func TestDirectory(t *testing.T) {
	objecttest.Run(t, func(t *testing.T) object.Store {
		d, err := object.NewDirectory(t.TempDir() + "/not/there/yet")
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

func TestFake(t *testing.T) {
	n := 0
	objecttest.Run(t, func(t *testing.T) object.Store {
		n++
		s, err := object.Open(strings.Replace(objecttest.NewFake(t).URL, "s3://bucket", fmt.Sprintf("s3://bucket/%d", n), 1))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestS3(t *testing.T) {
	where := objecttest.Server(t)
	n := 0
	objecttest.Run(t, func(t *testing.T) object.Store {
		n++
		s, err := object.Open(strings.Replace(where, "s3://bucket", fmt.Sprintf("s3://bucket/%d/below", n), 1))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
	t.Run("refused", func(t *testing.T) { refused(t, where) })
}

// refused: what the server refuses is of class user, and says what to do.
func refused(t *testing.T, where string) {
	none, err := object.Open(strings.Replace(where, "s3://bucket", "s3://no-such-bucket", 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = none.List(t.Context(), "", "")
	wantUser(t, err, "create the bucket")
	wantUser(t, none.PutIfAbsent(t.Context(), "a", nil), "create the bucket")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "not-this-one")
	wrong, err := object.Open(where)
	if err != nil {
		t.Fatal(err)
	}
	err = wrong.Put(t.Context(), "a", nil)
	wantUser(t, err, "AWS_ACCESS_KEY_ID")
	if strings.Contains(fmt.Sprint(err), "not-this-one") {
		t.Errorf("the error has the secret: %v", err)
	}
}

func wantUser(t *testing.T, err error, word string) {
	t.Helper()
	if fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), word) {
		t.Errorf("class %v, %v, want one of class user that says %q", fault.ClassOf(err), err, word)
	}
}

func TestOpen(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "http://store.example:9000/")
	for where, want := range map[string]string{
		"s3://bkt":           "s3://bkt/ at store.example:9000",
		"s3://bkt/jobs/one/": "s3://bkt/jobs/one at store.example:9000",
		"s3://bkt/x?endpoint=other:1&path_style=yes": "",
		"s3://bkt/x?endpoint=other:1&region=x":       "s3://bkt/x at other:1",
		"s3://bkt/x?token=hunter2":                   "",
		"s3://me:hunter2@bkt/x":                      "",
		"s3:///x":                                    "",
		"s3://bk/x":                                  "",
		"s3://10.0.0.1/x":                            "",
		"file://" + t.TempDir():                      "file://",
		"file://host/x":                              "",
		"gs://b/x":                                   "",
		"/plain/path":                                "",
	} {
		s, err := object.Open(where)
		switch {
		case want == "":
			wantUser(t, err, "valid is")
			if strings.Contains(fmt.Sprint(err), "hunter2") {
				t.Errorf("the error has the secret: %v", err)
			}
		case err != nil || !strings.HasPrefix(s.String(), want):
			t.Errorf("%s: %v, %v, want %s", where, s, err, want)
		}
	}
}

// TestBucketKeys: a key that no bucket takes is refused at once, and not asked for again and again.
func TestBucketKeys(t *testing.T) {
	s, err := object.Open("s3://bucket/x?endpoint=127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{strings.Repeat("k", 1025), "a\xff"} {
		_, err := s.Get(t.Context(), key, object.Whole)
		wantUser(t, err, "UTF-8")
		_, err = s.List(t.Context(), key, "")
		wantUser(t, err, "UTF-8")
		wantUser(t, s.PutIfAbsent(t.Context(), key, nil), "UTF-8")
	}
}

// careless is a store without conditional creation.
type careless struct{ object.Memory }

func (c *careless) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	return c.Put(ctx, key, data)
}

func TestProve(t *testing.T) {
	wantUser(t, object.Prove(t.Context(), &careless{}, "probe"), "does not create conditionally")
}

// flaky fails every other call, after it was done or instead of it.
type flaky struct {
	object.Memory
	mu   sync.Mutex
	n    int
	done bool // calls that fail are done
}

func (f *flaky) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	if f.n%2 == 1 && !f.done {
		return fault.Lostf("reset")
	}
	err := f.Memory.PutIfAbsent(ctx, key, data)
	if f.n%2 == 1 && err == nil {
		err = fault.Lostf("reset")
	}
	return err
}

// balanced is a store behind a balancer that repeats each create and answers with what the last one gave.
type balanced struct{ object.Memory }

func (b *balanced) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	_ = b.Memory.PutIfAbsent(ctx, key, data) // its answer is lost
	return b.Memory.PutIfAbsent(ctx, key, data)
}

// TestBalanced: a create that somebody on the way repeated is not taken for somebody else's, and a store that creates
// conditionally is found to do so.
func TestBalanced(t *testing.T) {
	s := object.Retry{Store: &balanced{}}
	if err := s.PutIfAbsent(t.Context(), "a", []byte("mine")); err != nil {
		t.Error(err)
	}
	if err := s.PutIfAbsent(t.Context(), "a", []byte("yours")); !errors.Is(err, object.ErrExists) {
		t.Errorf("%v, want ErrExists", err)
	}
	if err := object.Prove(t.Context(), s, "probe/"); err != nil {
		t.Error(err)
	}
}

// TestRetry: a create whose answer was lost is not taken for somebody else's.
func TestRetry(t *testing.T) {
	for _, done := range []bool{false, true} {
		f := &flaky{done: done}
		s := object.Retry{Store: f}
		if err := s.PutIfAbsent(t.Context(), "a", []byte("mine")); err != nil {
			t.Errorf("done %v: %v", done, err)
		}
		if err := s.PutIfAbsent(t.Context(), "a", []byte("yours")); !errors.Is(err, object.ErrExists) {
			t.Errorf("done %v: %v, want ErrExists", done, err)
		}
	}
	dead := object.Retry{Store: dead{}, For: 100 * time.Millisecond}
	err := dead.Put(t.Context(), "a", nil)
	if fault.ClassOf(err) != fault.Lost || !strings.Contains(fmt.Sprint(err), "tried") {
		t.Errorf("%v", err)
	}
}

type dead struct{ *object.Memory }

func (dead) Put(context.Context, string, []byte) error { return fault.Lostf("no route") }

func Example() {
	var s object.Memory
	fmt.Println(s.PutIfAbsent(context.Background(), "slots/1", []byte("mine")))
	err := s.PutIfAbsent(context.Background(), "slots/1", []byte("yours"))
	fmt.Println(errors.Is(err, object.ErrExists))
	data, _ := s.Get(context.Background(), "slots/1", object.Range{Off: 1, N: 2})
	fmt.Printf("%s\n", data)
	// Output:
	// <nil>
	// true
	// in
}
