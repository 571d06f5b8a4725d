package status

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestJudge: one line says whether trainers wait on data, and who is to blame.
func TestJudge(t *testing.T) {
	steady := []Holdup{{Cause: "trainers", Share: 0.95, Text: "trainers: rank dp=0 is at step 4"}, {Cause: "source", Name: "web", Share: 0.05}}
	by := func(cause, name, text string) []Holdup {
		return []Holdup{{Cause: "trainers", Share: 0.3}, {Cause: cause, Name: name, Share: 0.7, Text: text}}
	}
	waits := Trainers{Ranks: 4, Share: 0.31, Most: 0.4, MostRank: "rank 1", Least: 0.3, LeastRank: "rank 2"}
	for name, c := range map[string]struct {
		trainers Trainers
		holdups  []Holdup
		fetch    float64 // seconds; constructors worked for 1
		state    string
		cause    string
		who      string
		says     string
	}{
		"nobody says":   {Trainers{}, steady, 0, "running", "", "", ""},
		"starting":      {waits, steady, 0, "starting", "", "", ""},
		"failed":        {waits, steady, 0, "failed", "", "", ""},
		"all is well":   {Trainers{Ranks: 4, Share: 0.001, Most: 0.002}, by("source", "web", ""), 0, "running", "trainers", "", "none: data waits on trainers, which stood still 0.1 % of the last 10 s; 8 steps are ready or under way"},
		"but for one":   {Trainers{Ranks: 400, Share: 0.001, Most: 0.2, MostRank: "rank 3"}, steady, 0, "running", "trainers", "", "; most of all rank 3, 20 %"},
		"a source":      {waits, by("source", "web", "block 7 to be read by l0"), 0, "running", "source", "web", `trainers wait on data, 31 % of the last 10 s (rank 1 40 %): source "web" is not read fast enough, 70 % of the time: block 7 to be read by l0`},
		"constructors":  {waits, by("constructor", "", "2 rows"), 1, "running", "constructor", "", "do not put steps together fast enough"},
		"loaders":       {waits, by("constructor", "", "2 rows"), 3, "running", "loader", "", "loaders do not hand out samples"},
		"the planner":   {waits, by("planner", "", ""), 0, "running", "planner", "", "the planner does not plan fast enough, 70 % of the time; 8 of the next steps"},
		"the log":       {waits, by("log", "", "the log in /logs, whose last write has taken 12 s"), 0, "running", "log", "", "the planner's log is not written fast enough, 70 % of the time: the log in /logs, whose last write has taken 12 s"},
		"the log, soon": {Trainers{Ranks: 4}, by("log", "", "the log in /logs"), 0, "running", "log", "", "as far as they say; 8 steps are ready or under way: the planner's log is not written"},
		"who is away":   {waits, by("member", "", "constructor 1 of 2 to connect"), 0, "running", "member", "", "constructor 1 of 2 to connect"},
		"a slow rank":   {Trainers{Ranks: 4, Share: 0.3, Most: 0.4, MostRank: "rank 1", Least: 0.01, LeastRank: "rank 2"}, steady, 0, "running", "rank", "rank 2", "trainers wait for rank 2, 30 % of the last 10 s (rank 1 40 %): that rank itself waits 1.0 %, and as many steps"},
		"a rank is missing": {Trainers{Ranks: 1, Share: 0.99, Most: 0.99, MostRank: "rank 0"}, []Holdup{{Cause: "trainers", Share: 1, Text: "trainers: 1 of 2 ranks have not asked for a batch yet: rank dp=1"}},
			0, "running", "rank", "", "trainers wait for ranks that did not come, 99 % of the last 10 s: rank dp=1"},
		"a rank that waits less": {Trainers{Ranks: 2, Share: 0.6, Most: 0.9, MostRank: "rank 1", Least: 0.32, LeastRank: "rank 0"}, steady, 0, "running", "delivery", "", "take long to reach the ranks"},
		"a stopped planner": {waits, []Holdup{{Cause: "planner", Name: "stopped", Share: 0.6}, {Cause: "trainers", Share: 0.4}},
			0, "running", "planner", "", "the planner was stopped or had no CPU, 60 % of the time"},
		"a constructor that stutters": {waits, []Holdup{{Cause: "constructor", Name: "C0", Share: 0.3}, {Cause: "trainers", Share: 0.7}},
			0, "running", "constructor", "C0", "constructor C0 says nothing, 30 % of the time"},
		"constructors, soon": {Trainers{Ranks: 4}, by("constructor", "", "2 rows"), 1, "running", "constructor", "", "trainers stood still 0.0 % of the last 10 s, as far as they say; 8 steps are ready or under way: constructors do not put"},
		"a member was away":  {Trainers{Ranks: 4}, by("member", "", "constructor 1 of 2 to connect"), 0, "running", "member", "", "constructor 1 of 2 to connect"},
		"the way":            {waits, steady, 0, "running", "delivery", "", "take long to reach the ranks"},
		"one rank":           {Trainers{Ranks: 1, Share: 0.05, Most: 0.05, MostRank: "rank 1", Least: 0.05}, nil, 0, "running", "", "", "trainers wait on data, 5.0 % of the last 10 s: what holds"},
	} {
		s := Service{State: c.state, Trainers: c.trainers, Holdups: c.holdups, Planned: 12, Acked: 4, Constructors: []Constructor{{FetchSec: c.fetch, AssembleSec: 1}}}
		got := Judge(&s)
		if got.Cause != c.cause || got.Cause != "" && !slices.Contains(causes, got.Cause) || got.Name != c.who || !strings.Contains(got.Line, c.says) || (c.says == "") != (got.Line == "") {
			t.Errorf("%s: %+v, want %s %s, %q", name, got, c.cause, c.who, c.says)
		}
	}
}

// TestGPUs: what the GPUs of all constructors do is one line, and each is in the JSON.
func TestGPUs(t *testing.T) {
	var s Service
	if line := s.working(); line != "" {
		t.Errorf("without GPUs: %q", line)
	}
	s.Constructors = []Constructor{
		{GPUs: gpus([]*pb.GPUUsage{{Busy: 0.9, Received: 1e9, Counted: true, Sm: 0.8, Tensor: 0.05}})},
		{GPUs: gpus([]*pb.GPUUsage{{Index: 1, Busy: 0.3, Received: 2e9}})},
	}
	if line, want := s.working(), "2 GPUs are busy 60 % of the time (multiprocessors 80 %, tensor cores 5.0 %) and receive 1.50 GB/s each over PCIe"; line != want {
		t.Errorf("%q, want %q", line, want)
	}
	if !strings.Contains(s.String(), "\nGPUs: 2 GPUs are busy") || s.Constructors[1].GPUs[0].SM != nil {
		t.Error(s.String())
	}
}

// TestTrainersAdd: what constructors say is one figure, by their ranks.
func TestTrainersAdd(t *testing.T) {
	var x Trainers
	x.add(nil)
	x.add(&pb.TrainerWaits{Ranks: 1, Share: 0.2, Most: 0.2, MostRank: "a", Least: 0.2, LeastRank: "a"})
	x.add(&pb.TrainerWaits{})
	x.add(&pb.TrainerWaits{Ranks: 3, Share: 0.4, Most: 0.9, MostRank: "b", Least: 0.1, LeastRank: "c"})
	if want := (Trainers{4, 0.35000000000000003, 0.9, "b", 0.1, "c", 0}); x != want {
		t.Errorf("%+v, want %+v", x, want)
	}
}
