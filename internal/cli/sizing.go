package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/profile"
	"github.com/millrace-data/millrace/internal/regular"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/jobspec"
)

// sizingFlag is what the verbs that start loaders have in common.
type sizingFlag struct {
	Sizing string `help:"Without --loaders: auto sizes loaders by the profile that is kept beside the step log in --log-dir, if there is one; off starts one; or a file that plan --sizing --yaml printed." default:"auto" placeholder:"auto|off|FILE"`
}

var errBothLoaders = errors.New("--sizing FILE says how many loaders there are: leave --loaders out")

// pinned refuses a file and a number of loaders.
func (f *sizingFlag) pinned(loaders *int) error {
	if loaders != nil && f.Sizing != "auto" && f.Sizing != "off" {
		return errBothLoaders
	}
	return nil
}

// layout is that of a job's loaders; nil: there is one loader.
func (f *sizingFlag) layout(job *jobspec.Job, logDir string, opts service.SizeOptions, log *slog.Logger) (*sizing.Layout, error) {
	switch f.Sizing {
	case "off":
		return nil, nil
	case "auto", "":
	default:
		return readLayout(f.Sizing, job)
	}
	if logDir == "" {
		return nil, nil
	}
	p, err := profile.Read(logDir)
	if err != nil || !p.Covers(job.Sources) {
		return nil, nil // the planner says what is wrong with the file
	}
	d := service.Size(job, p, opts)
	log.Info("loaders by what sources cost", "loaders", len(d.Loaders), "try", "millrace plan --sizing for the reasons")
	return d.Layout(), nil
}

// readLayout reads a file of loaders.
func readLayout(path string, job *jobspec.Job) (*sizing.Layout, error) {
	data, err := regular.Text(path)
	if err != nil {
		return nil, fault.Userf("--sizing: %w; valid are auto, off and a file that `millrace plan --sizing --yaml` printed", err)
	}
	l, err := sizing.ParseLayout(data, service.SourceNames(job))
	if err != nil {
		return nil, fault.As(fault.User, fmt.Errorf("--sizing %s: %w", path, err))
	}
	return l, nil
}

// mostCores is more than all machines of a cluster have.
const mostCores = 1 << 24

// machineFlags say what loaders are sized for.
type machineFlags struct {
	Cores        float64 `help:"With --sizing: cores of all machines together. Default: those of this one." placeholder:"N"`
	Memory       string  `help:"With --sizing: their memory, such as 64GiB. Default: that of this one." placeholder:"BYTES"`
	Constructors int     `help:"With --sizing: data constructors." default:"1"`
	Processes    bool    `help:"With --sizing: each role runs in its own process."`

	memory int64
}

// given reports whether any of them says something.
func (f *machineFlags) given() bool {
	return f.Cores != 0 || f.Memory != "" || f.Constructors != 1 || f.Processes
}

func (f *machineFlags) check() (err error) {
	if f.Memory != "" {
		if f.memory, err = jobspec.ParseBytes(f.Memory); err != nil {
			return fmt.Errorf("--memory: %w", err)
		}
	}
	if !(f.Cores >= 0 && f.Cores <= mostCores) { // NaN is neither
		return fmt.Errorf("--cores is %g, valid is more than 0, up to %d", f.Cores, mostCores)
	}
	return atLeast("--constructors", int64(f.Constructors), 1)
}

// sizingRecords of each source are measured when there is no profile: some seconds for a few dozen sources.
const sizingRecords = 500

// sized prints the loaders that a job would have.
func (c *planCmd) sized(ctx context.Context, job *jobspec.Job, names extensions) (err error) {
	var p *profile.Profile
	if c.Profile != "" {
		if info, err := os.Stat(c.Profile); err == nil && info.IsDir() {
			return fault.Userf("--profile: %s is a folder: give the file in it, such as %s, which a service keeps beside its step log", c.Profile, filepath.Join(c.Profile, profile.FileName))
		}
		if p, err = profile.ReadFile(c.Profile); err != nil {
			return fault.As(fault.User, fmt.Errorf("--profile: %w", err))
		}
	} else {
		p, err = preview.Profile(ctx, sources(), names.functions.Open, job, preview.ProfileOptions{Records: sizingRecords, Workers: 1})
	}
	if err != nil {
		return err
	}
	if err := p.Lacks(job.Sources); err != nil {
		return err
	}
	d := service.Size(job, p, service.SizeOptions{
		Cores: c.Cores, Memory: c.memory, Step: c.stepTime().Seconds(), Constructors: c.Constructors, Processes: c.Processes, Steps: c.Steps,
	})
	switch {
	case c.YAML:
		fmt.Fprintf(stdout, "%s", d.Layout().YAML(job.Name))
		return nil
	case c.JSON:
		return printJSON(d)
	}
	fmt.Fprint(stdout, d)
	return nil
}
