package checkpoint_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

// TestKilled kills a process at some moments of its writing, again and again on the same
// log, which always opens, and has what the process took for durable.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("CHECKPOINT_TEST_WRITE"); dir != "" {
		writeForEver(t, dir)
	}
	dir := filepath.Join(t.TempDir(), "log")
	acked := int64(-1)
	for round := range 12 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), "CHECKPOINT_TEST_WRITE="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 1+round*round && lines.Scan(); n++ {
			if _, err := fmt.Sscan(lines.Text(), &acked); err != nil {
				t.Fatal(lines.Text())
			}
		}
		cmd.Process.Kill()
		for lines.Scan() { // what it said meanwhile
			fmt.Sscan(lines.Text(), &acked)
		}
		cmd.Wait()
		log := open(t, dir, checkpoint.Options{ReadOnly: round%2 == 0})
		if last, ok := log.Last(); !ok || last < acked || last > acked+1 {
			t.Fatalf("round %d: the log ends with step %d (%v), %d was acknowledged", round, last, ok, acked)
		}
		if changes, err := log.Changes(); err != nil || int64(len(changes)) < acked/8 {
			t.Fatalf("round %d: %d changes, %v", round, len(changes), err)
		}
		closeLog(t, log)
	}
}

// writeForEver appends steps and says which are durable, until it is killed.
func writeForEver(t *testing.T, dir string) {
	log, err := checkpoint.Open(dir, checkpoint.Options{Identity: job})
	if err != nil {
		t.Fatal(err)
	}
	last, _ := log.Last()
	for step := last + 1; ; step++ {
		if step%8 == 7 {
			if err := log.AddChange(fmt.Append(nil, step)); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Append(step, bulk(step)[:2000], nil); err != nil {
			t.Fatal(err)
		}
		fmt.Println(step)
		if err := log.SetDigest(step, [32]byte{byte(step)}); err != nil {
			t.Fatal(err)
		}
	}
}
