package bucket_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/object/objecttest"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/store/bucket"
	"github.com/millrace-data/millrace/internal/sourceloader/store/storetest"
)

// inBucket puts files below a prefix of its own.
func inBucket(t *testing.T, where string, n int) func(name string, data []byte) string {
	prefix := fmt.Sprintf("%d/data", n)
	s, err := object.Open(strings.Replace(where, "s3://bucket", "s3://bucket/"+prefix, 1))
	if err != nil {
		t.Fatal(err)
	}
	return func(name string, data []byte) string {
		if err := s.Put(context.Background(), name, data); err != nil {
			t.Fatal(err)
		}
		return "s3://bucket/" + prefix + "/" + name
	}
}

func TestBuckets(t *testing.T) {
	where := objecttest.Server(t)
	n := 0
	for name, st := range map[string]store.Store{
		"plain": new(bucket.Buckets), "cached": store.NewCached(new(bucket.Buckets), store.CacheOptions{Dir: t.TempDir(), Block: 64, Bytes: 1024}), "any": bucket.NewAny(t.TempDir()),
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Fixture {
				n++
				return storetest.Fixture{Store: st, Put: inBucket(t, where, n)}
			})
		})
	}
	t.Run("refused", func(t *testing.T) {
		st := new(bucket.Buckets)
		for uri, word := range map[string]string{"s3://no-such-bucket/x/*": "create the bucket", "s3://": "s3://BUCKET/PATH", "s3://bucket/none/": "no such file"} {
			if _, err := st.List(t.Context(), uri); fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), word) {
				t.Errorf("%s: class %v, %v", uri, fault.ClassOf(err), err)
			}
		}
	})
}

// TestDenied: credentials that expire while a source is read are waited with, those that never were good are not; nor are
// any by who waits at a terminal.
func TestDenied(t *testing.T) {
	fake := objecttest.NewFake(t)
	put := inBucket(t, fake.URL, 0)
	all := make([]string, 3)
	for i := range all {
		all[i] = put(fmt.Sprintf("day %d/a.txt", i), []byte("some text"))
	}
	t.Setenv("AWS_ENDPOINT_URL", strings.TrimPrefix(fake.URL, "s3://bucket?endpoint="))
	read := func(st store.Store, uri string) error {
		objects, err := st.List(t.Context(), uri)
		if err != nil {
			return err
		}
		h, err := st.Open(t.Context(), objects[0])
		if err != nil {
			return err
		}
		defer h.Close()
		_, err = h.ReadAt(make([]byte, 4), 0)
		return err
	}
	job, command := bucket.NewAny(t.TempDir()), bucket.ForCommand(t.TempDir())
	defer job.Close()
	defer command.Close()
	for name, st := range map[string]store.Store{"a job": job, "a command": command} {
		fake.Deny.Store(1)
		if err := read(st, all[0]); fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "AWS_ACCESS_KEY_ID") || fake.Deny.Load() != 0 {
			t.Errorf("%s that is denied at the start: class %v, %v", name, fault.ClassOf(err), err)
		}
		if err := read(st, all[0]); err != nil {
			t.Fatal(err)
		}
	}
	for i, uri := range all[1:] {
		fake.Deny.Store(int64(i + 2))
		if err := read(job, uri); err != nil || fake.Deny.Load() > 0 {
			t.Errorf("a job that is denied for a while: %v", err)
		}
	}
	objects, err := job.List(t.Context(), all[2])
	if err != nil {
		t.Fatal(err)
	}
	fake.Deny.Store(2)
	h, err := job.Open(t.Context(), objects[0]) // without a list before
	if err != nil || fake.Deny.Load() > 0 {
		t.Fatalf("a job that is denied for a while: %v", err)
	}
	h.Close()
	fake.Deny.Store(1)
	if err := read(command, all[1]); fault.ClassOf(err) != fault.User {
		t.Errorf("a command that is denied: class %v, %v", fault.ClassOf(err), err)
	}
}

// A job's sources are read by their names, wherever they are.
func Example() {
	st := bucket.NewAny("")
	defer st.Close()
	_, err := st.List(context.Background(), "s3://")
	fmt.Println(err)
	// Output: s3://: no URI of an object (valid: s3://BUCKET/PATH)
}
