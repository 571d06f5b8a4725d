package service

import (
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// Lint reads and checks a job spec with all that a service would find wrong with it before
// it reads data. The job is nil if anything but a warning is found.
func Lint(path string, names compile.Registry, opts ...jobspec.Option) (*jobspec.Job, jobspec.Findings) {
	return jobspec.Lint(path, append([]jobspec.Option{jobspec.CheckFilter(transform.CheckFilter), jobspec.CheckCost(compile.CheckCost), names.CheckNames()}, opts...)...)
}
