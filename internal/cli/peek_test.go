package cli

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
)

// TestPeek looks at the batches of a running job from outside: they are those that the
// ranks get, and nobody notices.
func TestPeek(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := serve(t, dir, "--constructors", "2")
	ranks := openRanks(t, s, -1, nil)
	for step := range 6 {
		seen := make([]*client.Batch, len(ranks))
		for dp := range ranks {
			var err error
			if seen[dp], err = client.Peek(t.Context(), s.address, int64(step), client.Options{Rank: client.Rank{DP: dp}}); err != nil {
				t.Fatal(err)
			}
		}
		for dp, c := range ranks {
			b, err := c.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(b.Microbatches, seen[dp].Microbatches, sameTensors) || seen[dp].Step != b.Step {
				t.Errorf("what is seen of step %d of %v is not what the rank gets", step, dp)
			}
		}
	}
	b, err := client.Peek(t.Context(), s.address, client.Newest, client.Options{})
	if err != nil || b.Step < 5 {
		t.Errorf("the newest is %v, %v", b, err)
	}
	_, err = client.Peek(t.Context(), s.address, 400, client.Options{})
	refused(t, err, "rank dp=0", "step 400 cannot be looked at: steps 5 to ", "millrace preview JOB --step 400")
	_, err = client.Peek(t.Context(), s.address, 4, client.Options{Rank: client.Rank{DP: 2}})
	refused(t, err, "outside the topology")
	if _, err = client.Peek(t.Context(), "127.0.0.1:1", 4, client.Options{}); fault.ClassOf(err) != fault.Lost {
		t.Errorf("nobody there: %v", err)
	}
}

// TestPreview shows a step of a job without a service: it is the one that ranks get, and
// nothing on disk changes.
func TestPreview(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	before := filesOf(t, dir)
	var p struct {
		Step    int64  `json:"step"`
		Content string `json:"content"`
		Samples []struct {
			DP   int     `json:"dp"`
			IDs  []int32 `json:"ids"`
			Text string  `json:"text"`
			File string  `json:"file"`
		} `json:"samples"`
	}
	r := millrace(t, dir, "preview", "job.yaml", "--step", "3", "--json")
	r.expect(t, 0)
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil || p.Step != 3 || len(p.Content) != 64 {
		t.Fatalf("%v\n%s", err, r.stdout)
	}
	s := serve(t, dir)
	for dp := range 2 {
		b, err := client.Peek(t.Context(), s.address, 3, client.Options{Rank: client.Rank{DP: dp}})
		if err != nil {
			t.Fatal(err)
		}
		var want, got [][]int32
		for _, m := range b.Microbatches {
			rows, err := m.Rows()
			if err != nil {
				t.Fatal(err)
			}
			tokens := m.Tensors[slices.IndexFunc(m.Tensors, func(x client.Tensor) bool { return x.Name == "tokens" })].Data
			for i, row := range rows {
				at := i * b.SequenceLength
				for _, n := range row.Lengths {
					var ids []int32
					for k := at; k < at+n; k++ {
						ids = append(ids, int32(binary.LittleEndian.Uint64(tokens[8*k:])))
					}
					want, at = append(want, ids), at+n
				}
			}
		}
		for _, x := range p.Samples {
			if x.DP == dp {
				got = append(got, x.IDs)
			}
		}
		byContent := func(a, b []int32) int { return slices.Compare(a, b) }
		slices.SortFunc(want, byContent)
		slices.SortFunc(got, byContent)
		if len(want) == 0 || !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("dp=%d gets other documents than those that are shown", dp)
		}
	}
	r = millrace(t, dir, "preview", "job.yaml", "--step", "3", "--rank", "dp=1", "--microbatch", "0")
	r.expect(t, 0)
	for _, want := range []string{"dp=1 microbatch 0, row ", " with loss, ", " padding", "words", ".jsonl", "byte", "[", " ... "} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("it does not show %q:\n%s", want, r.stdout)
		}
	}
	if strings.Contains(r.stdout, "dp=0") {
		t.Errorf("it shows another rank's rows:\n%s", r.stdout)
	}
	millrace(t, dir, "preview", "job.yaml", "--step", "-1").expect(t, exitUsage, "--step")
	millrace(t, dir, "preview", "job.yaml", "--step", "2", "--microbatch", "90").expect(t, exitUser, "no microbatch 90")
	if after := filesOf(t, dir); !slices.Equal(before, after) {
		t.Errorf("there are other files now: %v, before: %v", after, before)
	}
}

// filesOf lists the files below a folder, with their sizes and times.
func filesOf(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				files = append(files, fmt.Sprint(path, info.Size(), info.ModTime()))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func sameTensors(a, b client.Microbatch) bool {
	return slices.EqualFunc(a.Tensors, b.Tensors, func(x, y client.Tensor) bool { return x.Name == y.Name && slices.Equal(x.Data, y.Data) })
}
