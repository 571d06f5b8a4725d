package status

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
)

// since makes a function of how long sessions have said nothing.
func since(quiet map[control.Session]time.Duration) func(control.Session) time.Duration {
	return func(of control.Session) time.Duration { return quiet[of] }
}

// TestSilent: a role that is connected and has said nothing for long is named, and so is that no loader is connected.
func TestSilent(t *testing.T) {
	loaders := []control.Member{{Session: 1, Name: "l0", Address: "10.0.0.1:1"}, {Session: 2, Name: "l1", Address: "10.0.0.2:1"}}
	constructors := []control.Member{{Session: 3, Name: "c1", Address: "10.0.0.3:1"}}
	for name, c := range map[string]struct {
		state   string
		loaders []control.Member
		quiet   map[control.Session]time.Duration
		want    string
	}{
		"all speak":        {"running", loaders, map[control.Session]time.Duration{1: time.Second, 2: 0, 3: 2 * time.Second}, ""},
		"not yet for long": {"running", loaders, map[control.Session]time.Duration{1: silence, 3: silence}, ""},
		"a loader":         {"running", loaders, map[control.Session]time.Duration{1: 12 * time.Second, 2: time.Second, 3: silence}, "; loader l0 at 10.0.0.1:1 has said nothing for 12 s"},
		"a constructor":    {"running", loaders, map[control.Session]time.Duration{3: silence + time.Second}, "; constructor c1 at 10.0.0.3:1 has said nothing for 6 s"},
		"all of them": {"running", loaders, map[control.Session]time.Duration{1: 72 * time.Second, 2: 61 * time.Second, 3: 65 * time.Second},
			"; loader l0 at 10.0.0.1:1 has said nothing for 72 s; loader l1 at 10.0.0.2:1 has said nothing for 61 s; constructor c1 at 10.0.0.3:1 has said nothing for 65 s"},
		"no loader":                {"running", nil, nil, "; no loader is connected"},
		"no loader yet":            {"starting", nil, nil, ""},
		"no loader, and a silence": {"running", nil, map[control.Session]time.Duration{3: time.Minute}, "; no loader is connected; constructor c1 at 10.0.0.3:1 has said nothing for 60 s"},
	} {
		got := Silent(control.Snapshot{State: c.state, Loaders: c.loaders, Constructors: constructors}, since(c.quiet))
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestSilentConstructors: each of them is named, with how long it has said nothing.
func TestSilentConstructors(t *testing.T) {
	c0, c1 := control.Member{Session: 3, Name: "c0", Address: "10.0.0.3:1"}, control.Member{Session: 4, Name: "c1", Address: "10.0.0.4:1"}
	quiet := since(map[control.Session]time.Duration{3: 2600 * time.Millisecond, 4: time.Minute})
	for _, c := range []struct {
		all  []control.Member
		want string
	}{
		{nil, ""},
		{[]control.Member{c0}, "; constructor c0 at 10.0.0.3:1 has said nothing for 3 s"},
		{[]control.Member{c0, c1}, "; constructor c0 at 10.0.0.3:1 has said nothing for 3 s; constructor c1 at 10.0.0.4:1 has said nothing for 60 s"},
	} {
		if got := SilentConstructors(c.all, quiet); got != c.want {
			t.Errorf("%d constructors: %q, want %q", len(c.all), got, c.want)
		}
	}
}

// TestReading: of a loader that is silent, that comes before the file that it named last.
func TestReading(t *testing.T) {
	for _, c := range []struct {
		quiet time.Duration
		file  string
		want  string
	}{
		{0, "", ""},
		{2 * time.Second, "", ""},
		{0, "web/3.parquet", ", which reads web/3.parquet"},
		{2 * time.Second, "web/3.parquet", ", which reads web/3.parquet"},
		{7 * time.Second, "web/3.parquet", ", which has said nothing for 7 s"},
		{7 * time.Second, "", ", which has said nothing for 7 s"},
	} {
		if got := Reading(c.quiet, 2*time.Second, c.file); got != c.want {
			t.Errorf("quiet for %v, file %q: %q, want %q", c.quiet, c.file, got, c.want)
		}
	}
}

// TestWriting: a write to the log that takes long is said, with what its mirror answered.
func TestWriting(t *testing.T) {
	full := errors.New("no space left on device")
	for _, c := range []struct {
		taken  time.Duration
		mirror error
		want   string
	}{
		{900 * time.Millisecond, full, ""},
		{12 * time.Second, nil, ", whose last write has taken 12 s"},
		{12 * time.Second, full, ", whose last write has taken 12 s (its mirror: no space left on device)"},
	} {
		if got := Writing(c.taken, c.mirror); got != c.want {
			t.Errorf("%v, %v: %q, want %q", c.taken, c.mirror, got, c.want)
		}
	}
}
