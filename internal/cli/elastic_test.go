package cli

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// member is a loader or constructor of its own process.
type member struct {
	role string
	cmd  *exec.Cmd
	over <-chan struct{}
}

// TestRolesComeAndGo: while ranks take steps, loaders and constructors join, and leave when they
// are asked to, until none of the first ones is left. Each is gone within ten seconds with
// exit code 0, no rank hears of it, and the batches are the reference's.
func TestRolesComeAndGo(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	planner := startPlanner(t, dir, "127.0.0.1:0")
	var members []*member
	joined := 0
	join := func(role string) {
		id := fmt.Sprintf("%s-%c", role, 'a'+joined)
		joined++
		cmd := command(context.WithoutCancel(t.Context()), dir, role, "--planner", planner.address, "--id", id)
		members = append(members, &member{role, cmd, launch(t, cmd)})
		for begin := time.Now(); !strings.Contains(millrace(t, dir, "status", planner.address, "--json").stdout, `"`+id+`"`); {
			if time.Since(begin) > hangs {
				t.Fatalf("%s did not join", id)
			}
		}
	}
	leave := func(role string) { // the oldest one
		for i, m := range members {
			if m.role != role {
				continue
			}
			members = append(members[:i:i], members[i+1:]...)
			begin := time.Now()
			if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			go func() {
				<-m.over
				if took := time.Since(begin); took > 10*time.Second || m.cmd.ProcessState.ExitCode() != 0 {
					t.Errorf("a %s that was asked to leave did so after %v: %v", role, took, m.cmd.ProcessState)
				}
			}()
			t.Cleanup(func() { <-m.over })
			return
		}
		t.Fatalf("there is no %s", role)
	}
	join("loader")
	join("constructor")
	join("constructor")
	ranks := openRanks(t, planner, 2, nil)
	for step := range 36 {
		switch step % 12 {
		case 1:
			join("loader")
			join("loader")
		case 2:
			leave("loader")
		case 3:
			join("constructor") // a spare one
		case 5:
			leave("loader")
		case 7:
			leave("constructor")
		case 9:
			join("loader")
		case 10:
			leave("loader")
		}
		if failed := takeStep(t, ranks); failed != nil {
			t.Fatalf("at step %d: %v", step, failed)
		}
		time.Sleep(20 * time.Millisecond)
	}
	checkReference(t, dir, ranks[0])
	checkReference(t, dir, ranks[1])
}
