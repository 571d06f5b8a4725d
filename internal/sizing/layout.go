package sizing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/millrace-data/millrace/internal/fault"
)

// Layout are the loaders of a job, as a person may pin them.
type Layout struct {
	Loaders []Loader
}

// Layout is what was decided, without the reasons.
func (d *Decision) Layout() *Layout { return &Layout{d.Loaders} }

// YAML is the layout as a file that ParseLayout reads.
func (l *Layout) YAML(job string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Loaders of job %s. To pin them: --sizing with this file, for serve, run and planner.\nloaders:\n", quoted(job))
	for _, x := range l.Loaders {
		var all []string
		for _, name := range x.Sources {
			all = append(all, quoted(name))
		}
		fmt.Fprintf(&b, "  - {workers: %d, buffer: %d, sources: [%s]}\n", x.Workers, x.Buffer, strings.Join(all, ", "))
	}
	return []byte(b.String())
}

func quoted(text string) string { return fmt.Sprintf("%q", text) }

// ParseLayout reads the layout of a job with these sources. What is wrong with it is of class fault.User.
func ParseLayout(data []byte, sources []string) (*Layout, error) {
	var file struct {
		Loaders []struct {
			Workers int      `yaml:"workers"`
			Buffer  int64    `yaml:"buffer"`
			Sources []string `yaml:"sources"`
		} `yaml:"loaders"`
	}
	if err := yaml.UnmarshalWithOptions(data, &file, yaml.Strict()); err != nil {
		return nil, fault.Userf("not a list of loaders: %w; valid is what `millrace plan JOB --sizing --yaml` prints", err)
	}
	l := &Layout{}
	missing := slices.Clone(sources)
	for i, x := range file.Loaders {
		switch {
		case x.Workers < 0 || x.Workers > mostWorkers:
			return nil, fault.Userf("loaders[%d].workers is %d, valid is 1 to %d, or 0 for one per core", i, x.Workers, mostWorkers)
		case x.Buffer < 0:
			return nil, fault.Userf("loaders[%d].buffer is %d, valid is 1 or more bytes, or 0 for that of the job spec", i, x.Buffer)
		case len(x.Sources) == 0:
			return nil, fault.Userf("loaders[%d].sources is empty: name those that it reads", i)
		}
		for _, name := range x.Sources {
			if !slices.Contains(sources, name) {
				return nil, fault.Userf("loaders[%d].sources: the job has no source %q; it has %s", i, name, names(sources))
			}
			missing = slices.DeleteFunc(missing, func(s string) bool { return s == name })
		}
		l.Loaders = append(l.Loaders, Loader{x.Sources, x.Workers, x.Buffer})
	}
	if len(missing) > 0 {
		return nil, fault.Userf("no loader reads %s", names(missing))
	}
	if len(l.Loaders) > mostLoaders {
		return nil, fault.Userf("%d loaders, valid are %d or fewer", len(l.Loaders), mostLoaders)
	}
	return l, nil
}

// Limits of what a person may pin, so that a slip of the finger does not fill a machine.
const (
	mostWorkers = 1024
	mostLoaders = 4096
)

// Deal says for each of some sources which loaders read it, rising.
func (l *Layout) Deal(sources []string) [][]int {
	deal := make([][]int, len(sources))
	for i, name := range sources {
		for n, x := range l.Loaders {
			if slices.Contains(x.Sources, name) {
				deal[i] = append(deal[i], n)
			}
		}
	}
	return deal
}

// Buffer is the memory for samples of all loaders together; of those that leave it open, fallback each.
func (l *Layout) Buffer(fallback int64) (n int64) {
	for _, x := range l.Loaders {
		n += cmp.Or(x.Buffer, fallback)
	}
	return n
}
