package cli

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// orphansEvery is how often the first process of a container looks for orphans.
const orphansEvery = 10 * time.Second

// reapOrphans waits, as the first process of a container has to, for processes whose parent died: such as the workers of a
// loader that was killed. Those that are dead at two looks in a row are nobody's; a parent here waits for its own at once.
func reapOrphans(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	before := map[int]bool{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := deadChildren()
		for pid := range now {
			if before[pid] {
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // an error says that it is gone
			}
		}
		before = now
	}
}

// deadChildren are those of this process that nobody has waited for.
func deadChildren() map[int]bool {
	dead := map[int]bool{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it is gone
		}
		// The second field is a name in brackets, which may have any letters.
		_, rest, _ := strings.Cut(string(text[max(strings.LastIndexByte(string(text), ')'), 0):]), " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[0] != "Z" || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			dead[pid] = true
		}
	}
	return dead
}
