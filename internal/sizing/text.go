package sizing

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// String is the page that `millrace plan --sizing` prints.
func (d *Decision) String() string {
	var b strings.Builder
	for _, note := range d.Notes {
		fmt.Fprintln(&b, note)
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\nloader\tworkers\tbuffer\tsources\n")
	for n, l := range d.Loaders {
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\n", n, l.Workers, bytes(l.Buffer), names(l.Sources))
	}
	fmt.Fprint(w, "\nsource\tcluster\twork a step\tlevel\tcores\tworkers\tloaders\tmemory\twhy\n")
	for i := range d.Rows {
		r := &d.Rows[i]
		fmt.Fprintf(w, "%s\t%d\t%.3g ms\t%.3g\t%.2f\t%.2f\t%s\t%s\t%s\n", r.Source, r.Cluster, 1e3*r.Work, r.Level, r.Cores, r.Workers, numbers(r.Loaders), bytes(r.Memory), r.Why)
	}
	w.Flush()
	fmt.Fprintf(&b, "\n%d loaders take %s of %s\n", len(d.Loaders), bytes(d.Taken), bytes(d.Memory))
	return b.String()
}

// mostNamed sources of a loader are named.
const mostNamed = 6

func names(all []string) string {
	text := strings.Join(all[:min(len(all), mostNamed)], ", ")
	if n := len(all) - mostNamed; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

func numbers(all []int) string {
	if n := len(all); n > 2 && all[n-1]-all[0] == n-1 {
		return fmt.Sprintf("%d-%d", all[0], all[n-1])
	}
	return strings.Trim(fmt.Sprint(all), "[]")
}
