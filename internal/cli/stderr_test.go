package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
)

// TestUnreadLog serves a source of thousands of bad records to someone who never reads
// standard error: the job goes on when the pipe is full, and stops when it is to.
func TestUnreadLog(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--processes"}} {
		t.Run(strings.Join(args, ""), func(t *testing.T) {
			t.Parallel()
			const bad = 3000 // whose warnings are far more than a pipe holds
			dir := folder(t, "  - name: words\n    files: words/*.jsonl\n",
				fmt.Sprintf("  - name: words\n    files: words/*.jsonl\n    bad_records: {policy: skip, limit: %d}\n", 2*bad), "dp: 2", "dp: 1")
			put(t, dir, "words/2.jsonl", lines(150)+strings.Repeat("{\"text\": 17,\n", bad))
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			cmd := command(context.WithoutCancel(t.Context()), dir, append([]string{"serve", "job.yaml", "--listen", "127.0.0.1:0"}, args...)...)
			address, stop := serveInto(t, cmd, write)
			c, err := client.Open(t.Context(), address, client.Options{Deadline: hangs})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 200 { // several epochs
				if _, err := c.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			stop()
		})
	}
}

// serveInto starts a service whose standard error is a pipe; stop ends it.
func serveInto(t *testing.T, cmd *exec.Cmd, stderr *os.File) (address string, stop func()) {
	t.Helper()
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stderr.Close()
	hung := time.AfterFunc(2*hangs, func() { cmd.Process.Kill() })
	t.Cleanup(func() { hung.Stop(); cmd.Process.Kill() })
	line := make([]byte, 200)
	n, _ := stdout.Read(line)
	m := servingLine.FindStringSubmatch(string(line[:n]))
	if m == nil {
		t.Fatalf("serve's first line is %q", line[:n])
	}
	return m[2], func() {
		t.Helper()
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestUnreadLinesAreCounted counts what a log loses.
func TestUnreadLinesAreCounted(t *testing.T) {
	gate, out := make(chan struct{}), new(lockedBuffer)
	l := newLogWriter(gated{gate, out})
	for i := range linesQueued + 10 {
		fmt.Fprintf(l, "line %d\n", i)
	}
	close(gate)
	l.close()
	l.Write([]byte("too late\n"))
	text := out.String()
	kept := strings.Count(text, "\nline ") + 1
	if want := fmt.Sprintf("millrace: %d lines of the log were left out", linesQueued+10-kept); !strings.HasPrefix(text, "line 0\n") || kept < linesQueued || !strings.Contains(text, want) {
		t.Errorf("%d lines are kept, and it does not say %q", kept, want)
	}
}

// gated is a writer that waits.
type gated struct {
	gate <-chan struct{}
	to   io.Writer
}

func (g gated) Write(p []byte) (int, error) {
	<-g.gate
	return g.to.Write(p)
}
