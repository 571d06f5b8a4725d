package telemetry

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// query is what a panel or an alert asks Prometheus.
type query struct{ where, expr, legend string }

// panels are the queries of the dashboard.
func panels(t *testing.T) (all []query) {
	text, err := os.ReadFile("../../monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID          int
			Title       string
			Targets     []struct{ Expr, LegendFormat string }
			Type        string
			Description string
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range board.Panels {
		if seen[p.ID] {
			t.Errorf("two panels have the number %d", p.ID)
		}
		seen[p.ID] = true
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("panel %q shows nothing, or does not say what", p.Title)
		}
		for _, q := range p.Targets {
			all = append(all, query{"panel " + p.Title, q.Expr, q.LegendFormat})
		}
	}
	return all
}

// alerts are the queries of the alert rules, which docs/telemetry.md names.
func alerts(t *testing.T) (all []query) {
	text, err := os.ReadFile("../../monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	for _, r := range rules.Groups[0].Rules {
		if !strings.Contains(string(doc), "| `"+r.Alert+"`") {
			t.Errorf("%s does not say what %s is", page, r.Alert)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" || r.Annotations["description"] == "" {
			t.Errorf("%s: severity %q, description %q", r.Alert, s, r.Annotations["description"])
		}
		all = append(all, query{"alert " + r.Alert, r.Expr, legends(r.Annotations["summary"])})
	}
	return all
}

// legends has the labels of an alert's text as a panel's legend has them.
func legends(summary string) string {
	return strings.ReplaceAll(summary, "$labels.", "")
}

var (
	metricName = regexp.MustCompile(`\b((?:millrace|process|go)_[a-z_]+)(\{[^}]*\})?`)
	selected   = regexp.MustCompile(`([a-z_]+)(?:=~|=|!=)`)
	grouped    = regexp.MustCompile(`\b(?:by|on) \(([a-z_, ]+)\)`)
	shown      = regexp.MustCompile(`\{\{ ?([a-z_]+) ?\}\}`)
)

// TestMonitoring: the dashboard and the alert rules ask for metrics that exist, by labels that these have.
func TestMonitoring(t *testing.T) {
	byName := map[string]Metric{}
	for _, m := range Metrics {
		byName[m.Prometheus()] = m
	}
	used := map[string]bool{}
	for _, q := range append(panels(t), alerts(t)...) {
		labels := []string{"instance"} // which Prometheus gives
		found := metricName.FindAllStringSubmatch(q.expr, -1)
		if len(found) == 0 {
			t.Errorf("%s asks for no metric: %s", q.where, q.expr)
		}
		for _, f := range found {
			m, ok := byName[f[1]]
			if !ok {
				t.Errorf("%s asks for %s, which no role gives", q.where, f[1])
			}
			used[f[1]] = true
			labels = append(labels, m.Labels...)
			for _, l := range selected.FindAllStringSubmatch(f[2], -1) {
				if l[1] != "instance" && !slices.Contains(m.Labels, l[1]) {
					t.Errorf("%s asks for %s by %s, which it has not", q.where, f[1], l[1])
				}
			}
		}
		ofJob := slices.Contains(labels, JobName)
		if ofJob && strings.HasPrefix(q.where, "panel") && strings.Count(q.expr, `{job_name=~"$job_name",`) == 0 {
			t.Errorf("%s shows all jobs, whichever is chosen: %s", q.where, q.expr)
		}
		if ofJob && !strings.Contains(q.legend, JobName) {
			t.Errorf("%s does not say of which job it is: %q", q.where, q.legend)
		}
		if ofJob && strings.Count(q.expr, "max(")+strings.Count(q.expr, "sum(") > 0 {
			t.Errorf("%s puts jobs together: %s", q.where, q.expr)
		}
		for _, g := range grouped.FindAllStringSubmatch(q.expr, -1) {
			if ofJob && !strings.Contains(g[1], JobName) {
				t.Errorf("%s puts jobs together by %s", q.where, g[1])
			}
			for l := range strings.SplitSeq(g[1], ", ") {
				if !slices.Contains(labels, l) {
					t.Errorf("%s groups by %s, which none of its metrics has", q.where, l)
				}
			}
		}
		for _, l := range shown.FindAllStringSubmatch(q.legend, -1) {
			if !slices.Contains(labels, l[1]) {
				t.Errorf("%s shows %s, which none of its metrics has", q.where, l[1])
			}
		}
	}
	if len(used) < 30 {
		t.Errorf("dashboard and alerts ask for %d metrics only: %v", len(used), used)
	}
}

// TestRules has Prometheus's own tool say what fires when, where it is installed. Whatever pages has such a test.
func TestRules(t *testing.T) {
	text, err := os.ReadFile("../../monitoring/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"TrainersWait", "NoProgress", "StartHangs", "PlannerGone", "MemberMissing", "TookOver", "Reconnects"} {
		if !strings.Contains(string(text), "alertname: Millrace"+name+"\n") {
			t.Errorf("nothing says when Millrace%s fires", name)
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (apt-get install prometheus)")
	}
	if out, err := exec.Command(promtool, "test", "rules", "../../monitoring/alerts_test.yaml").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
