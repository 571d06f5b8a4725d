package constructor

import (
	"slices"
	"sync"

	"github.com/millrace-data/millrace/internal/constructor/assemble"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// content is what a step is laid out by: the mesh and format of its job, and what
// the sources hold beside tokens.
type content struct {
	layout  assemble.Layout   // of rows of any length
	names   []string          // of the sources that were there from the start
	kept    []*pb.KeptColumns // by source
	images  []*pb.ImageStep   // by source; empty if no source has images
	mesh    *pb.Mesh
	columns []string // that any source keeps, sorted
	joined  []string // sources that joined after the start
}

// addMask gives a row the tokens without loss of its last document.
func (r *row) addMask(bounds []int32) {
	if len(bounds) > 0 {
		r.Masked = append(r.Masked, make([][]int32, len(r.Segments)-len(r.Masked))...)
		r.Masked[len(r.Segments)-1] = bounds
	}
}

// currentJob is the job as the planner described it last. The zero value has none; it is safe
// for concurrent use.
type currentJob struct {
	mu      sync.Mutex // guards the fields below
	content content
	next    *content // described, and in force from the next restart on; nil if nothing changes
}

// set takes a description of the job. Steps that are being built are of the one before.
func (j *currentJob) set(job *pb.ConstructorJob, layout assemble.Layout) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next = &content{layout: layout, kept: job.Kept, names: job.Sources, images: job.Images, mesh: job.Mesh}
	if j.content.mesh == nil {
		j.content, j.next = *j.next, nil
	}
}

// join adds a source that joined the job. Steps that are being built keep the lists they have.
func (j *currentJob) join(src *pb.SourceJoined) {
	j.mu.Lock()
	defer j.mu.Unlock()
	to := j.next
	if to == nil {
		to = &j.content
	}
	to.kept = append(slices.Clip(to.kept), &pb.KeptColumns{Names: src.Keep})
	to.joined = append(slices.Clip(to.joined), src.Name)
}

// restart puts in force what was described. Plans come after it.
func (j *currentJob) restart() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.next != nil {
		j.content, j.next = *j.next, nil
	}
}

func (j *currentJob) now() content {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.content
	for _, k := range c.kept {
		c.columns = append(c.columns, k.Names...)
	}
	slices.Sort(c.columns)
	c.columns = slices.Compact(c.columns)
	return c
}
