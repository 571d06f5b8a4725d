package jobspec

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/formats"
)

// thd is the output format that pads each document by itself.
const thd = formats.BatchMegatronTHD

// RowLength returns the tokens that a sample takes of its row: its own, and the
// padding up to output.document_multiple. What fills rows counts samples by it.
func (j *Job) RowLength(tokens int) int {
	m := max(j.Output.DocumentMultiple, 1)
	return (tokens + m - 1) / m * m
}

// deriveDocumentMultiple takes what Megatron-Core asks for: documents that are cut
// into 2 * cp chunks, and whose part on a CP rank is cut over the TP ranks.
func (d *decoder) deriveDocumentMultiple(job *Job) {
	o, tp, cp := &job.Output, job.Topology.TP, job.contextRanks()
	if o.Format != thd || d.given("output.document_multiple") || !d.sound("topology.cp", "topology.tp", "batch.context_split") {
		return
	}
	o.DocumentMultiple = 1
	if cp > 1 {
		o.DocumentMultiple = 2 * cp
	}
	if tp > 1 {
		o.DocumentMultiple = leastCommonMultiple(o.DocumentMultiple, cp*tp)
	}
}

// contextRanks returns the number of ranks that a document is cut over at most.
func (j *Job) contextRanks() int {
	switch split := j.Batch.ContextSplit; {
	case split > 0:
		return split
	case j.Pool():
		return 1
	}
	return j.Topology.CP
}

func leastCommonMultiple(a, b int) int {
	x, y := a, b
	for y > 0 {
		x, y = y, x%y
	}
	return a / x * b
}

func (c *checker) output() {
	o, cp := c.job.Output, c.job.Topology.CP
	if !c.sound("output.format", "topology.cp", "topology.tp", "batch.context_split") {
		return
	}
	if o.Format == thd {
		c.documents()
		return
	}
	if o.DocumentMultiple > 0 && c.sound("output.document_multiple") {
		c.error("output.document_multiple", "is given with format: "+o.Format+", which does not pad documents", "remove it, or write format: "+thd)
	}
	if o.Format == formats.BatchTorchtitan && cp > 1 && o.CPSlicing != "none" && c.sound("output.cp_slicing") {
		c.error("output.cp_slicing", o.CPSlicing+" would cut what torchtitan cuts itself", "valid is none")
	}
}

// documents checks what megatron-thd needs.
func (c *checker) documents() {
	o, cp, length := c.job.Output, c.job.contextRanks(), c.job.Batch.SequenceLength
	ranks := "cp"
	if c.job.Batch.ContextSplit > 0 {
		ranks = "context_split"
	}
	if o.PadID != 0 && c.sound("output.pad_id") {
		c.error("output.pad_id", fmt.Sprintf("%d, but the padding of format: %s holds 0", o.PadID, thd), "valid is 0")
	}
	if o.CPSlicing == "contiguous" && cp > 1 && c.sound("output.cp_slicing") {
		c.error("output.cp_slicing", "contiguous would cut through documents, which format: "+thd+" cuts one by one", "valid are zigzag, none")
	}
	if !c.sound("output.document_multiple") {
		return
	}
	if m := o.DocumentMultiple; cp > 1 && m%(2*cp) != 0 {
		c.error("output.document_multiple", fmt.Sprintf("%d is not a multiple of 2 * %s = %d", m, ranks, 2*cp), near(int64(m), int64(2*cp)))
	} else if c.sound("batch.sequence_length") && length%m != 0 {
		c.error("batch.sequence_length", fmt.Sprintf("%d is not a multiple of output.document_multiple %d", length, m), near(int64(length), int64(m)))
	}
}
