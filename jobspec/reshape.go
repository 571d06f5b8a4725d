package jobspec

import "github.com/millrace-data/millrace/internal/fault"

// Reshape returns an error of class fault.User if the job's output could not be cut
// and padded with rows of another length on a mesh with other sizes, as a change of a
// running job may ask for: sequenceLength in tokens, cp and tp in ranks. Of sequences, the rows of
// a step, there may not be too many; how they are divided is not looked at.
func (j *Job) Reshape(sequenceLength, sequences, cp, tp int) error {
	if sequences > maxAxis {
		return fault.Userf("batch.sequences: %d rows, valid is at most %d", sequences, maxAxis)
	}
	if sequenceLength > maxRow {
		return fault.Userf("batch.sequence_length: %d tokens, valid is at most %d", sequenceLength, maxRow)
	}
	next := *j
	next.Batch.SequenceLength, next.Topology.CP, next.Topology.TP = sequenceLength, cp, tp
	c := &checker{report: newReport(""), job: &next}
	c.slices()
	c.output()
	for _, f := range c.findings {
		if !f.Warning {
			return fault.Userf("%s: %s, %s", f.Field, f.Message, f.Valid)
		}
	}
	return nil
}
