package status

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// String is the page that `millrace status` prints.
func (s Service) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s: %s, planner up for %s\n", s.Job, s.State, (time.Duration(s.UptimeSec) * time.Second).String())
	if s.Error != "" {
		fmt.Fprintf(&b, "error (%s): %s\n", s.Class, s.Error)
	}
	fmt.Fprintf(&b, "steps: %d planned, %d done by all ranks", s.Planned, s.Acked)
	if s.End >= 0 {
		fmt.Fprintf(&b, ", data ends at step %d", s.End)
	}
	if s.State != "ended" {
		fmt.Fprintf(&b, "; last plan %.2f %% full, %d samples carried over", 100*s.Fill, s.Carried)
	}
	if s.Held > 0 {
		fmt.Fprintf(&b, ", %d outliers wait for others", s.Held)
	}
	b.WriteByte('\n')
	if s.EndReason != "" {
		fmt.Fprintln(&b, s.EndReason)
	}
	fmt.Fprintf(&b, "waiting for: %s\n", s.WaitingFor)
	if s.Stall.Line != "" {
		fmt.Fprintf(&b, "stall: %s\n", s.Stall.Line)
	}
	if line := s.working(); line != "" {
		fmt.Fprintf(&b, "GPUs: %s\n", line)
	}
	s.suspects(&b)
	if s.Promotions > 0 || s.ReadAgain > 0 {
		fmt.Fprintf(&b, "loaders lost: %d places taken by shadows, %d blocks read again\n", s.Promotions, s.ReadAgain)
	}
	s.Scaling.page(&b)
	if s.StaleRefused > 0 {
		fmt.Fprintf(&b, "epoch %d: %d messages refused of planners before it\n", s.Epoch, s.StaleRefused)
	}
	if s.AppendsRefused > 0 {
		fmt.Fprintf(&b, "log: %d writes refused of planners that another one had taken over from\n", s.AppendsRefused)
	}
	if s.Digest != "" {
		fmt.Fprintf(&b, "digest step=%d %s\n", s.DigestStep, s.Digest)
	}
	if s.Calibration != "" {
		fmt.Fprintf(&b, "cost by step times: %s\n", s.Calibration)
	}
	for _, c := range s.Changes[max(len(s.Changes)-5, 0):] {
		fmt.Fprintf(&b, "change %s\n", c)
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nsource\tshare\tscheduled\ttokens\tsamples\tepoch\tlag\tfiltered\tdropped\tempty\tskipped\t\n")
	for _, x := range s.Sources {
		name := x.Name
		if x.State != "" {
			name += " (" + x.State + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%.4f\t%d\t%s\t%d\t%.0f\t%d\t%d\t%d\t%d\t\n", name, known("%.4f", x.Realised), x.Scheduled,
			x.Tokens, known("%d", x.Samples), x.Epoch, x.Lag, x.Filtered, x.Dropped, x.Empty, x.Skipped)
	}
	w.Flush()
	s.warnings(&b)
	s.members(w)
	s.stages(w)
	w.Flush()
	s.ways(&b)
	s.deaths(&b)
	return b.String()
}

// warnings says which sources lack fields, and from which nothing is learned.
func (s Service) warnings(b *strings.Builder) {
	for _, x := range s.Sources {
		for _, a := range x.Absent {
			fmt.Fprintf(b, "source %s: %s\n", x.Name, a)
		}
		if x.NoLoss != nil && x.NoLoss.All() {
			fmt.Fprintf(b, "source %s: %s\n", x.Name, x.NoLoss)
		}
	}
}

// page writes what was decided last, and what is wrong.
func (s *Scaling) page(b *strings.Builder) {
	if s == nil {
		return
	}
	fmt.Fprintf(b, "scaling: %d loaders wanted", s.Loaders)
	if len(s.Drained) > 0 {
		fmt.Fprintf(b, ", drained: %s", strings.Join(s.Drained, ", "))
	}
	b.WriteByte('\n')
	if n := len(s.Did); n > 0 {
		fmt.Fprintf(b, "scaled: %s\n", s.Did[n-1])
	}
	if s.Problem != "" {
		fmt.Fprintf(b, "scaling fails: %s\n", oneLine(s.Problem))
	}
}

// oneLine is what a program of the user's printed, or an error that quotes it: whatever is in it cannot look like another line of the
// page, nor reach the terminal as anything but text.
func oneLine(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// suspects writes what is wrong with loaders and constructors.
func (s Service) suspects(b *strings.Builder) {
	for _, l := range s.Loaders {
		if l.DiskProblem != "" {
			fmt.Fprintf(b, "%s keeps nothing more on its local disk: %s\n", l.ID, oneLine(l.DiskProblem))
		}
		if l.Suspect != "" {
			fmt.Fprintf(b, "suspect: loader %s at %s: %s; others are asked in its place\n", l.ID, l.Address, l.Suspect)
		}
		b.WriteString(l.warmth())
	}
	for _, c := range s.Constructors {
		if c.Suspect != "" {
			fmt.Fprintf(b, "suspect: constructor %s at %s: %s\n", c.ID, c.Address, c.Suspect)
		}
	}
	for _, x := range s.Elsewhere {
		fmt.Fprintln(b, x)
	}
	for _, x := range s.Misplaced {
		fmt.Fprintln(b, x)
	}
}

// members writes the tables of loaders and constructors.
func (s Service) members(w io.Writer) {
	fmt.Fprintf(w, "\nloader\tplace\theld MiB\tof MiB\ton disk MiB\tof MiB\tread MiB\tblocks\tread again\t\n")
	for _, l := range s.Loaders {
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t%d\t\n", l.ID, l.role(), mib(l.HeldBytes), mib(l.BudgetBytes),
			mib(l.DiskBytes), mib(l.DiskBudget), mib(l.ReadBytes), l.BlocksRead, l.Rereads)
	}
	fmt.Fprintf(w, "\nconstructor\tdp ranks\theld MiB\tof MiB\tdelivered MiB\tbatches\tfetch s\tranks waited s\thedged\t\n")
	for _, c := range s.Constructors {
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%.1f\t%.1f\t%d\t%.1f\t%.1f\t%d\t\n", c.ID, c.ranks(), mib(c.HeldBytes), mib(c.BudgetBytes),
			mib(c.DeliveredBytes), c.Delivered, c.FetchSec, c.WaitSec, c.Hedged)
	}
}

// ways writes how ranks get their batches.
func (s Service) ways(b *strings.Builder) {
	for _, c := range s.Constructors {
		for _, x := range c.Ways {
			fmt.Fprintf(b, "%s: ranks %s: %d", c.ID, wayNames[x.Way], x.Ranks)
			if x.Reason != "" {
				fmt.Fprintf(b, ", since %s", x.Reason)
			}
			if len(x.First) > 0 {
				fmt.Fprintf(b, ": %s", strings.Join(x.First, ", "))
				if more := int(x.Ranks) - len(x.First); more > 0 {
					fmt.Fprintf(b, " and %d more", more)
				}
			}
			b.WriteByte('\n')
		}
	}
}

// wayNames are the ways of delivery in words.
var wayNames = map[string]string{"shared": "by shared memory", "socket": "by a socket, without shared memory", "stream": "by a stream", "calls": "by a call for each step", "gone": "that are gone"}

// ranks are the DP ranks that it serves, in words.
func (c *Constructor) ranks() string {
	if len(c.Buckets) == 0 {
		return "spare"
	}
	return fmt.Sprint(c.Buckets)
}

// warmth says of a shadow what it has ready.
func (l *Loader) warmth() string {
	if l.Place >= 0 {
		return ""
	}
	text := fmt.Sprintf("shadow %s has %d sources open", l.ID, l.Sources)
	if n := len(l.Cold); n > 0 {
		text += fmt.Sprintf(", and not %s", strings.Join(l.Cold[:min(n, maxCold)], ", "))
		if n > maxCold {
			text += fmt.Sprintf(" and %d more", n-maxCold)
		}
	}
	if l.Copies+l.Lacks > 0 {
		text += fmt.Sprintf("; it has read %d blocks beside other loaders, and has %d to read", l.Copies, l.Lacks)
	}
	return text + "\n"
}

// maxCold sources of a shadow are named.
const maxCold = 8

// role is a loader's place in words.
func (l *Loader) role() string {
	if l.Place < 0 {
		return "shadow"
	}
	return strconv.Itoa(l.Place)
}

func mib(n uint64) float64 { return float64(n) / (1 << 20) }

// known is a number as text; - if it is nil.
func known[T any](format string, n *T) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf(format, *n)
}
