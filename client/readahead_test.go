package client_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestNothingStaysMapped: a client that is closed has no memory of its constructor's mapped any more, though batches were read
// ahead that lie there, and it may have been in another mesh before.
func TestNothingStaysMapped(t *testing.T) {
	if _, err := os.Stat("/proc/self/maps"); err != nil {
		t.Skip("this system does not say what is mapped: ", err)
	}
	file := filepath.Join(t.TempDir(), "kept.jsonl")
	if err := os.WriteFile(file, []byte(strings.Repeat(`{"text": "some words", "label": "one of a kind"}`+"\n", 500)), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := "name: kept\nsources: [{name: kept, files: " + file + ", keep: [label]}]\nbatch: {sequence_length: 48, sequences: 2}\n"
	withServiceOf(t, spec, func(ctx context.Context, address string) {
		for _, remesh := range []bool{false, true} {
			c := open(ctx, t, address, client.Options{Prefetch: 3, Way: client.WayShared, Start: client.Beginning})
			for range 6 {
				b, err := c.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				b.Release()
			}
			for end := time.Now().Add(time.Minute); viewed(t) == 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("no batch came in shared memory: nothing was shown")
				}
			}
			time.Sleep(200 * time.Millisecond) // all that is read ahead comes
			if remesh {
				if err := c.Remesh(ctx, client.Mesh{DP: 2}, client.Rank{}, c.Step()); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if n := viewed(t); n > 0 {
				t.Errorf("remesh %v: %d pieces of shared memory stay mapped", remesh, n)
			}
		}
	})
}

// viewed is how many pieces of shared memory are mapped to be read only.
func viewed(t *testing.T) (n int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, " r--s ") && strings.Contains(line, "memfd:millrace") {
			n++
		}
	}
	return n
}

// TestEndOfReaderStays: the end of the data is the answer to each call from then on, though the context of the one that met it
// had ended.
func TestEndOfReaderStays(t *testing.T) {
	p := servePlanned(t, &planned{protocol: rpc.Protocol, streams: true})
	c := open(t.Context(), t, p.address, client.Options{Deadline: 2 * time.Second})
	ended, end := context.WithCancel(t.Context())
	end()
	var err error
	for begin := time.Now(); !errors.Is(err, io.EOF) && time.Since(begin) < 10*time.Second; time.Sleep(time.Millisecond) {
		_, err = c.Next(ended)
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("the end was not met: %v", err)
	}
	if _, err := c.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}
