package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// TestHangs: a row that hangs is found in a few timeouts, however many rows are beside it, and where the job stops
// at one, those behind it are not tried.
func TestHangs(t *testing.T) {
	opt := options(t)
	opt.Timeout, opt.TimeoutDecides = 300*time.Millisecond, true
	for _, stop := range []bool{false, true} {
		e := open(t, opt)
		f, err := e.Function(t.Context(), Use{Name: "steps:dies", Source: "web", Step: "transforms[1]", Stop: stop})
		if err != nil {
			t.Fatal(err)
		}
		const rows, at = 5000, 1234
		lines := slices.Repeat([]string{"a"}, rows)
		lines[at] = "hang"
		if stop {
			lines = append(lines[:at+1], slices.Repeat([]string{"hang"}, rows-at-1)...)
		}
		for reading := range 2 {
			out, from, end, err := f.CallSome(t.Context(), texts(lines...), 0, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]int{false: rows, true: at + 1}[stop]; end != want || len(from) != want {
				t.Errorf("stop %t, reading %d: %d rows were done, and %d came out, want %d", stop, reading, end, len(from), want)
			}
			if err := out.Bad(at); fault.ClassOf(err) != fault.User || err == nil || err.Error() != "it took longer than 300ms" {
				t.Errorf("stop %t, reading %d, row %d: %v", stop, reading, at, err)
			}
			if n := e.Status().Restarts; n > 8 { // with all rows, 156, 4, and the row alone twice, for which one that worked gives way; none in the second reading
				t.Errorf("stop %t, reading %d: %d workers were ended", stop, reading, n)
			}
		}
		lines[at] = "another row"
		if out, _, _, err := f.CallSome(t.Context(), texts(lines[:at+1]...), 0, 1<<20); err != nil || out.Bad(at) != nil {
			t.Errorf("stop %t: another row in its place: %v, %v", stop, err, out.Bad(at))
		}
	}
}
