package object

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/millrace-data/millrace/internal/fault"
)

const testSilence = 600 * time.Millisecond

// bucketOf is a bucket whose requests serve answers.
func bucketOf(t *testing.T, serve http.HandlerFunc) *S3 {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return bucketAt(t, server.Listener.Addr())
}

func bucketAt(t *testing.T, address net.Addr) *S3 {
	t.Helper()
	s, err := NewS3(S3Options{
		Bucket: "bucket", Endpoint: address.String(), Plain: true, Region: "r", PathStyle: true, Silence: testSilence,
		Creds: credentials.NewStaticV4("k", "s", ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// describe writes the header of an object of some bytes.
func describe(w http.ResponseWriter, size string) {
	w.Header().Set("ETag", `"abc"`)
	w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Length", size)
}

// TestSwallowed: requests on connections that are dead, and known to nobody as such, cost one attempt: the next one goes
// over another connection.
func TestSwallowed(t *testing.T) {
	const idle = 3
	var mu sync.Mutex
	var all sync.WaitGroup
	all.Add(idle)
	served := map[string]int{} // by address of the client
	s := bucketOf(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		served[r.RemoteAddr]++
		first, early := served[r.RemoteAddr] == 1, len(served) <= idle
		mu.Unlock()
		switch {
		case first && early:
			all.Done()
			all.Wait() // each on a connection of its own
		case early:
			<-r.Context().Done()
			return
		}
		describe(w, "0")
	})
	var opening sync.WaitGroup
	for range idle {
		opening.Go(func() {
			if err := s.Put(t.Context(), "a", []byte("first")); err != nil {
				t.Error(err)
			}
		})
	}
	opening.Wait()
	attempts := &counted{Store: s}
	begin := time.Now()
	if err := (Retry{Store: attempts}).PutIfAbsent(t.Context(), "log/1", []byte("data")); err != nil || attempts.n != 2 {
		t.Errorf("%d attempts in %v, %v; want the second one to succeed", attempts.n, time.Since(begin), err)
	}
}

// TestPatience: a store that is slow to answer at all has more time from the second attempt on.
func TestPatience(t *testing.T) {
	s := bucketOf(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(3 * testSilence / 2)
		describe(w, "0")
	})
	attempts := &counted{Store: s}
	if err := (Retry{Store: attempts}).PutIfAbsent(t.Context(), "log/1", []byte("data")); err != nil || attempts.n != 2 {
		t.Errorf("%d attempts, %v; want the second one to succeed", attempts.n, err)
	}
}

// counted counts the creates of a store.
type counted struct {
	Store
	n int
}

func (c *counted) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	c.n++
	return c.Store.PutIfAbsent(ctx, key, data)
}

// TestStalledBody: a body that stops to come is asked for again.
func TestStalledBody(t *testing.T) {
	n := 0
	s := bucketOf(t, func(w http.ResponseWriter, r *http.Request) {
		describe(w, "1000")
		if n++; n == 1 {
			_, _ = w.Write([]byte("x"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1000))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*testSilence)
	defer cancel()
	if data, err := (Retry{Store: s}).Get(ctx, "a", Whole); err != nil || len(data) != 1000 || n != 2 {
		t.Errorf("%d bytes after %d requests, %v", len(data), n, err)
	}
}

// TestUploadNotTaken: an upload of which nothing is taken is lost.
func TestUploadNotTaken(t *testing.T) {
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*testSilence)
	defer cancel()
	err = bucketAt(t, deaf.Addr()).Put(ctx, "a", make([]byte, 32<<20))
	if ctx.Err() != nil || fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "nothing has moved for") {
		t.Errorf("class %v: %v", fault.ClassOf(err), err)
	}
}

// TestSlow: what takes long and makes progress is waited for.
func TestSlow(t *testing.T) {
	const parts, size = 12, 32 << 20
	s := bucketOf(t, func(w http.ResponseWriter, r *http.Request) {
		describe(w, map[string]string{http.MethodPut: "0", http.MethodGet: "12"}[r.Method])
		for range parts {
			time.Sleep(testSilence / 4)
			if r.Method == http.MethodPut {
				_, _ = io.CopyN(io.Discard, r.Body, size/parts+1<<10) // the signatures of its chunks, too
				continue
			}
			_, _ = w.Write([]byte("x"))
			w.(http.Flusher).Flush()
		}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	begin := time.Now()
	if err := s.Put(t.Context(), "a", make([]byte, size)); err != nil || time.Since(begin) < 2*testSilence {
		t.Errorf("an upload, after %v: %v", time.Since(begin), err)
	}
	begin = time.Now()
	if data, err := s.Get(t.Context(), "a", Whole); err != nil || len(data) != parts || time.Since(begin) < 2*testSilence {
		t.Errorf("a download, after %v: %d bytes, %v", time.Since(begin), len(data), err)
	}
}

// TestSlowUplink: a body that the kernel has taken, and the link has not carried, is on its way.
func TestSlowUplink(t *testing.T) {
	s := bucketOf(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(2 * testSilence)
		_, _ = io.Copy(io.Discard, r.Body)
		describe(w, "0")
	})
	if err := s.Put(t.Context(), "a", make([]byte, 3<<20)); err != nil {
		t.Error(err)
	}
}

// slow is a store whose first answer takes longer than calls are repeated, and is lost.
type slow struct {
	*Memory
	n int
}

func (s *slow) Put(context.Context, string, []byte) error {
	if s.n++; s.n > 1 {
		return nil
	}
	time.Sleep(2 * time.Millisecond)
	return fault.Lostf("reset")
}

// TestOnceMore: a call whose first attempt took all of the time is repeated.
func TestOnceMore(t *testing.T) {
	s := &slow{}
	if err := (Retry{Store: s, For: time.Millisecond}).Put(t.Context(), "a", nil); err != nil || s.n != 2 {
		t.Errorf("%d attempts, %v", s.n, err)
	}
}
