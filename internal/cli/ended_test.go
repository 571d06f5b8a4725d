package cli

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// held has who writes to it wait until it is opened.
type held struct {
	begun func() // called when something comes first
	open  chan struct{}
}

func (h *held) Write(p []byte) (int, error) {
	if h.begun != nil {
		h.begun()
		h.begun = nil
	}
	<-h.open
	return len(p), nil
}

// TestCertificateEnds: a run whose certificate ends after its first step goes on to its end, with the whole summary.
func TestCertificateEnds(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	ours := newAuthority(t, dir, "ours")
	const steps = "1000" // whose lines no pipe holds, so that the run waits for who reads
	args := slices.Concat([]string{"run", "job.yaml", "--json", "--steps", steps}, tlsArgs("service", "ours"))
	for left := 5 * time.Second; ; left *= 2 {
		ends := time.Now().Add(left).Truncate(time.Second)
		ours.issueUntil(t, ends, dir, "service", "service trainer", "127.0.0.1")
		late, h := false, &held{open: make(chan struct{})}
		h.begun = func() {
			late = !time.Now().Before(ends)
			time.AfterFunc(time.Until(ends.Add(time.Second)), func() { close(h.open) })
		}
		cmd := command(t.Context(), dir, args...)
		cmd.Stdout = h
		r := runCommand(t, cmd)
		if r.stdout == "" && left < time.Minute || late { // it had ended before the service was there
			continue
		}
		r.digest(t)
		lines := bytes.Split([]byte(strings.TrimSpace(r.stdout)), []byte("\n"))
		var sum runJSON
		if err := json.Unmarshal(lines[len(lines)-2], &sum); err != nil || len(sum.Status.Sources) != 2 || sum.Status.Planned < 1000 {
			t.Errorf("the summary is %s: %v\n%s", lines[len(lines)-2], err, r.stderr)
		}
		return
	}
}
