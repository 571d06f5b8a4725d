package jobspec

import "fmt"

// ParseSource reads one entry of `sources`, as JSON or as YAML in flow style, for
// a source that joins a running job. Of an entry that others sent, see NoVariables.
func ParseSource(job *Job, entry []byte, opts ...Option) (Source, Findings) {
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
