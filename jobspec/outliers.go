package jobspec

import "fmt"

// deriveTogether has a row of its own for each outlier of a level, as far as that
// is allowed.
func (d *decoder) deriveTogether(job *Job) {
	if o := job.Batch.Outliers; o != nil && !d.given("batch.outliers.together") {
		o.Together = max(1, min(job.Batch.Sequences, maxHeld/max(1, len(o.Above))))
	}
}

func (c *checker) outliers() {
	const at = "batch.outliers"
	o := c.job.Batch.Outliers
	if o == nil || !c.sound(at+".above", at+".together") {
		return
	}
	if c.job.Batch.ContextSplit > 0 {
		c.error(at, "does not go with batch.context_split, which gives a long sample a row as wide as it needs", "remove one of the two")
		return
	}
	c.levels(o.Above, at+".above")
	rows, levels := c.job.Batch.Sequences, len(o.Above)
	switch {
	case levels > maxLevels:
	case c.sound("batch.sequences", "batch.tokens", "batch.sequence_length") && o.Together > rows:
		c.error(at+".together", fmt.Sprintf("%d samples do not fit into a step of %d rows, where each may need one", o.Together, rows), fmt.Sprintf("valid is 1 to %d", min(rows, maxHeld/levels)))
	case o.Together*levels > maxHeld:
		c.error(at+".together", fmt.Sprintf("%d samples of each of %d lengths are %d", o.Together, levels, o.Together*levels), fmt.Sprintf("valid is 1 to %d, as twice %d travel in every resume token at most", maxHeld/levels, maxHeld))
	}
}

// levels checks the lengths that outliers begin at.
func (c *checker) levels(above []int, at string) {
	if len(above) > maxLevels {
		c.error(at, fmt.Sprintf("has %d lengths", len(above)), fmt.Sprintf("valid are at most %d", maxLevels))
		return
	}
	length := c.job.Batch.SequenceLength
	for i, n := range above {
		switch item := itemField(at, i); {
		case i > 0 && n <= above[i-1]:
			c.error(item, fmt.Sprintf("%d is not above the length before, %d", n, above[i-1]), "write the lengths from the smallest on")
		case c.sound("batch.sequence_length") && n > length:
			c.error(item, fmt.Sprintf("%d is more than batch.sequence_length %d: no sample is so long", n, length), fmt.Sprintf("valid is 1 to %d", length))
		}
	}
}
