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

// A job's sources are read by their names, wherever they are.
func Example() {
	st := bucket.NewAny("")
	defer st.Close()
	_, err := st.List(context.Background(), "s3://")
	fmt.Println(err)
	// Output: s3://: no URI of an object (valid: s3://BUCKET/PATH)
}
