package objecttest

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/object"
)

// Fake is a bucket in memory, behind as much of S3 as stores ask for. It takes any credentials.
type Fake struct {
	URL    string       // for object.Open
	Denied atomic.Bool  // it answers all requests with 403 meanwhile
	Deny   atomic.Int64 // number of the next requests that it answers so
	bucket object.Memory
}

// NewFake serves a bucket until the test ends. The environment has credentials meanwhile.
func NewFake(t testing.TB) *Fake {
	t.Helper()
	f := &Fake{}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", user)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	f.URL = "s3://bucket?endpoint=" + server.URL
	return f
}

// ServeHTTP implements http.Handler.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/bucket"), "/")
	var err error
	switch {
	case f.Denied.Load(), f.Deny.Load() > 0 && f.Deny.Add(-1) >= 0:
		err = object.ErrDenied
	case r.Method == http.MethodPut:
		err = f.put(r, key)
		w.Header().Set("ETag", `"written"`)
	case r.Method == http.MethodDelete:
		if err = f.bucket.Delete(r.Context(), key); err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
	case key == "":
		err = f.list(w, r)
	default:
		err = f.get(w, r, key)
	}
	for known, status := range map[error]int{
		object.ErrDenied: http.StatusForbidden, object.ErrNotExist: http.StatusNotFound, object.ErrExists: http.StatusPreconditionFailed,
	} {
		if errors.Is(err, known) {
			w.WriteHeader(status)
			return
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// put writes an object, whose body comes in signed pieces where the connection is not encrypted.
func (f *Fake) put(r *http.Request, key string) error {
	data, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-"):
		if data, err = unchunk(data); err != nil {
			return err
		}
	}
	if r.Header.Get("If-None-Match") == "*" {
		return f.bucket.PutIfAbsent(r.Context(), key, data)
	}
	return f.bucket.Put(r.Context(), key, data)
}

// unchunk is what a body holds in pieces, each after a line with its size.
func unchunk(body []byte) (data []byte, err error) {
	for rest := string(body); ; {
		head, after, _ := strings.Cut(rest, "\r\n")
		size := 0
		if _, err := fmt.Sscanf(head, "%x;", &size); err != nil || size > len(after) {
			return nil, fmt.Errorf("%q is no size of a piece", head)
		}
		if size == 0 {
			return data, nil
		}
		data = append(data, after[:size]...)
		rest = strings.TrimPrefix(after[size:], "\r\n")
	}
}

func (f *Fake) get(w http.ResponseWriter, r *http.Request, key string) error {
	info, err := f.bucket.Stat(r.Context(), key)
	if err != nil {
		return err
	}
	data, err := f.bucket.Get(r.Context(), key, object.Whole)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", `"`+info.Version+`"`)
	http.ServeContent(w, r, "", time.Now(), strings.NewReader(string(data)))
	return nil
}

// listing is the answer to a request for a list.
type listing struct {
	XMLName  xml.Name `xml:"ListBucketResult"`
	Contents []listed
}

type listed struct {
	Key, ETag, LastModified string
	Size                    int64
}

func (f *Fake) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	all, err := f.bucket.List(r.Context(), query.Get("prefix"), query.Get("start-after"))
	var l listing
	for _, o := range all {
		l.Contents = append(l.Contents, listed{o.Key, o.Version, time.Now().UTC().Format(time.RFC3339), o.Size})
	}
	return errors.Join(err, xml.NewEncoder(w).Encode(l))
}
