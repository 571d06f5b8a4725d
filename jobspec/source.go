package jobspec

import (
	"bytes"
	"fmt"
)

// ParseSource reads one entry of `sources`, as JSON or as YAML in flow style, for
// a source that joins a running job. It has no variables: they would be those of whoever reads it, and not of who sent it.
func ParseSource(job *Job, entry []byte, opts ...Option) (Source, Findings) {
	if bytes.Contains(bytes.ReplaceAll(entry, []byte("$$"), nil), []byte("${")) {
		r := newReport("the added source")
		r.error("sources[0]", "has a ${variable}", "write its value: variables are those of a job spec alone ($$ stands for a dollar sign)")
		return Source{}, r.findings
	}
	spec := fmt.Sprintf("name: added\nsources:\n- %s\nbatch: {sequence_length: %d, sequences: 1}\n", entry, job.LongestSample())
	added, findings := Parse("the added source", []byte(spec), job.Dir, opts...)
	if findings.Err() != nil {
		return Source{}, findings
	}
	if added.Sources[0].Images() != nil {
		r := newReport("the added source")
		r.error("sources[0].transforms", "has an image step", "a source with images is there from the start of a job: write it into the job spec")
		return Source{}, r.findings
	}
	return added.Sources[0], findings
}
