package status

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// TestLost: ranks whose constructor says nothing or is gone stand still, whatever it said last; the metric is there and says
// so, and the line names who it is.
func TestLost(t *testing.T) {
	loaders := []control.Member{{Session: 1, Name: "l0", Address: "10.0.0.1:1"}}
	two := []control.Member{{Session: 3, Name: "C0", Address: "10.0.0.3:1", Buckets: []uint32{0}}, {Session: 4, Name: "C1", Address: "10.0.0.4:1", Buckets: []uint32{1}}}
	steady := control.Holdup{Cause: control.CauseTrainers, Text: "trainers: rank dp=1 is at step 884", Ranks: true}
	missing := control.Holdup{Cause: control.CauseMember, Text: "constructor 1 of 2 to connect"}
	noLoader, silent := control.Holdup{Cause: control.CauseMember, Text: "loader 0 of 2 to connect", Loaders: true}, control.Holdup{Cause: control.CauseMember, Text: "word of one of 2 loaders, such as l0", Loaders: true}
	pair := append(loaders, control.Member{Session: 2, Name: "l1", Address: "10.0.0.2:1"})
	for name, c := range map[string]struct {
		state    string
		joined   bool
		loaders  []control.Member
		there    []control.Member
		unserved []uint32
		holdup   control.Holdup
		quiet    map[control.Session]time.Duration
		share    float64 // -1: no metric
		lost     uint32
		cause    string
		says     string
	}{
		"all speak":                      {"running", true, loaders, two, nil, steady, nil, 0.001, 0, "trainers", "none: "},
		"one is stopped":                 {"running", true, loaders, two, nil, steady, map[control.Session]time.Duration{3: 3 * time.Second}, 0.5005, 2, "constructor", "trainers wait on data, 50 % of the last 10 s (the ranks of constructor C0 100 %): constructor C0 at 10.0.0.3:1 says nothing, for 3 s"},
		"not for long":                   {"running", true, loaders, two, nil, steady, map[control.Session]time.Duration{3: muteAfter}, 0.001, 0, "trainers", "none: "},
		"both are":                       {"running", true, loaders, two, nil, steady, map[control.Session]time.Duration{3: 9 * time.Second, 4: 8 * time.Second}, 1, 4, "constructor", "100 % of the last 10 s (the ranks of constructor C0 100 %): constructor C0 at 10.0.0.3:1 says nothing, for 9 s; constructor C1 at 10.0.0.4:1 says nothing, for 8 s"},
		"one is gone":                    {"running", true, loaders, two[:1], []uint32{1}, missing, nil, 0.5005, 2, "member", "(the ranks that no constructor serves 100 %): constructor 1 of 2 to connect"},
		"one of each":                    {"running", true, loaders, two[:1], []uint32{1}, missing, map[control.Session]time.Duration{3: 9 * time.Second}, 1, 4, "constructor", "constructor C0 at 10.0.0.3:1 says nothing, for 9 s; constructor 1 of 2 to connect"},
		"all are gone":                   {"running", true, loaders, nil, []uint32{0, 1}, missing, nil, 1, 4, "member", "100 % of the last 10 s"},
		"the job is over":                {"ended", true, loaders, nil, []uint32{0, 1}, missing, nil, 0, 0, "", ""},
		"nobody joined":                  {"running", false, loaders, nil, []uint32{0, 1}, missing, nil, -1, 0, "", ""},
		"a loader is stopped":            {"running", true, loaders, two, nil, steady, map[control.Session]time.Duration{1: time.Minute}, 0.001, 0, "member", "trainers stood still 0.1 % of the last 10 s, as far as they say; 0 steps are ready or under way: loader l0 at 10.0.0.1:1 says nothing, for 60 s"},
		"no loader is there":             {"running", true, nil, two, nil, steady, nil, 0.001, 0, "member", "as far as they say; 0 steps are ready or under way: no loader is connected"},
		"none is, and one is waited for": {"running", true, nil, two, nil, noLoader, nil, 0.001, 0, "member", "as far as they say; 0 steps are ready or under way: loader 0 of 2 to connect"},
		"all loaders are stopped":        {"running", true, pair, two, nil, silent, map[control.Session]time.Duration{1: 14 * time.Second, 2: time.Minute}, 0.001, 0, "member", "under way: loader l0 at 10.0.0.1:1 says nothing, for 14 s, and 1 more"},
		"all are, since a moment ago":    {"running", true, pair, two, nil, silent, map[control.Session]time.Duration{1: 3 * time.Second, 2: 3 * time.Second}, 0.001, 0, "member", "under way: word of one of 2 loaders, such as l0"},
		"one of two loaders is stopped":  {"running", true, pair, two, nil, steady, map[control.Session]time.Duration{2: time.Minute}, 0.001, 0, "loader", "under way: loader l1 at 10.0.0.2:1 says nothing, for 60 s"},
	} {
		x := control.Snapshot{State: c.state, Joined: c.joined, Loaders: c.loaders, Constructors: c.there, Holdup: c.holdup, Ranks: 4, DPRanks: 2, Unserved: c.unserved}
		s := Of(x, func(control.Session) *pb.LoaderUsage { return nil }, func(control.Session) *pb.ConstructorUsage {
			return &pb.ConstructorUsage{Trainers: &pb.TrainerWaits{Ranks: 2, Share: 0.001, Most: 0.001, Least: 0.001}}
		}, since(c.quiet))
		var h Holdups
		for now := time.Second; now < 20*time.Second; now += HoldupEvery {
			h.Look(steady, 0, now, 0, 0)
		}
		h.Judge(&s, &Rejoins{}, 20*time.Second)
		share, by := -1.0, ""
		s.Observe(func(m telemetry.ID, value float64, labels ...string) {
			switch {
			case m == telemetry.TrainersWaitShare:
				share = value
			case m == telemetry.StallBy && value == 1:
				by += labels[0]
			}
		})
		if share != c.share || by != c.cause || s.Trainers.Lost != c.lost || s.Stall.Cause != c.cause || !strings.Contains(s.Stall.Line, c.says) || (c.says == "") != (s.Stall.Line == "") {
			t.Errorf("%s: share %v, by %q, %d lost, %+v", name, share, by, s.Trainers.Lost, s.Stall)
		}
	}
}

// TestUnknown: a planner that was stopped says so, though no constructor has told of its ranks since.
func TestUnknown(t *testing.T) {
	for _, c := range []struct {
		holdups []Holdup
		want    string
	}{
		{nil, ""},
		{[]Holdup{{Cause: "trainers", Share: 1}}, ""},
		{[]Holdup{{Cause: "planner", Name: stopped, Share: 0.7}, {Cause: "trainers", Share: 0.3}}, "trainers have not said how long they stood still: the planner was stopped or had no CPU, 70 % of the time"},
		{[]Holdup{{Cause: "source", Name: "web", Share: 0.7, Text: "block 7"}}, `trainers have not said how long they stood still: source "web" is not read fast enough, 70 % of the time: block 7`},
	} {
		if got := Judge(&Service{State: "running", Joined: true, Holdups: c.holdups}); got.Line != c.want {
			t.Errorf("%q, want %q", got.Line, c.want)
		}
	}
}

// TestStarves: where the ranks of one constructor wait and hold the others back, it is named; a rank that is slow itself is
// still what the ranks of other constructors wait for.
func TestStarves(t *testing.T) {
	of := func(id string, bucket uint32, share float64) Constructor {
		return Constructor{ID: id, Buckets: []uint32{bucket}, Trainers: Trainers{Ranks: 1, Share: share}}
	}
	s := Service{
		State: "running", Constructors: []Constructor{of("C0", 0, 0.01), of("C1", 1, 0.4), of("C2", 2, 0.03)},
		Trainers: Trainers{Ranks: 3, Share: 0.15, Most: 0.4, MostRank: "rank dp=1", Least: 0.01, LeastRank: "rank dp=0"},
		Holdups:  []Holdup{{Cause: "trainers", Share: 1}},
	}
	for bucket, want := range map[uint32]Stall{0: {Cause: "rank", Name: "rank dp=0"}, 1: {Cause: "constructor", Name: "C1"}} {
		s.facts.now = control.Holdup{Cause: control.CauseTrainers, Slow: control.Acked{Bucket: bucket, Slowest: "some rank"}}
		if got := Judge(&s); got.Cause != want.Cause || got.Name != want.Name {
			t.Errorf("dp=%d holds the job back: %+v", bucket, got)
		}
	}
}
