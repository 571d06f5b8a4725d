package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/millrace-data/millrace/internal/rig"
)

//go:embed ranks.py
var ranksProgram string

// said is a line of ranks.py: the waits of a step, in seconds, by rank, or the token at the end.
type said struct {
	Waits []float64 `json:"waits"`
	Token string    `json:"token"`
}

// trainPython trains all ranks in a Python process. They end with the token that ranks in Go ended
// with, if that is known: it has the digest of all steps.
func trainPython(ctx context.Context, python string, t rig.Training, want []byte) (*rig.Trained, error) {
	sizes := t.Answer.Job.Topology
	cmd := exec.CommandContext(ctx, python, "-c", ranksProgram, t.Address, strconv.Itoa(sizes.DP), strconv.Itoa(sizes.CP),
		strconv.FormatInt(t.Steps, 10), strconv.Itoa(t.Prefetch), fmt.Sprint(t.Pace.Seconds()))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("ranks in Python: %w", err)
	}
	trained := &rig.Trained{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var s said
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return trained, fmt.Errorf("ranks in Python printed %q: %w", lines.Text(), err)
		}
		if s.Token != "" {
			if trained.Token, err = hex.DecodeString(s.Token); err != nil {
				return trained, err
			}
			continue
		}
		waits := make([]time.Duration, len(s.Waits))
		for i, w := range s.Waits {
			waits[i] = time.Duration(w * float64(time.Second))
		}
		trained.Waits = append(trained.Waits, waits)
		t.OnStep(trained.Steps)
		trained.Steps++
	}
	switch err := cmd.Wait(); {
	case err != nil:
		return trained, fmt.Errorf("ranks in Python: %w", err)
	case want != nil && !bytes.Equal(want, trained.Token):
		return trained, fmt.Errorf("ranks in Python end with another token than those in Go")
	}
	return trained, nil
}
