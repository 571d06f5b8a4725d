package preview

import (
	"context"
	"errors"
	"path"
	"slices"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// FileQuery asks where the records of a file go.
type FileQuery struct {
	Source   string // "": every source that reads the file
	File     string // its path, or so much of the end of it that no other file ends so
	Record   int64  // place in the file, as in Sample; -1: all
	From, To int64  // steps, both included
}

// Trace is the answer to a FileQuery: the samples of the file in the steps
// asked for, as far as there are such steps.
type Trace struct {
	From    int64    `json:"from"`
	To      int64    `json:"to"`
	End     int64    `json:"end"` // steps that the data gave; -1 if it did not end
	Samples []Sample `json:"samples"`
}

// Trace plans up to the last step asked for and says which samples of a file
// are in which steps, all pieces and epochs. progress hears of each step; it may be nil.
func (j *Job) Trace(ctx context.Context, q FileQuery, progress func(step int64)) (*Trace, error) {
	files, err := j.find(q)
	if err != nil {
		return nil, err
	}
	switch {
	case q.From < 0 || q.To < q.From:
		return nil, fault.Userf("steps %d to %d are not a range: the first is 0 or more, and the last not before it", q.From, q.To)
	case q.From < j.start:
		return nil, fault.Userf("step %d is before step %d, where the plan begins: take an earlier token, or none", q.From, j.start)
	}
	t := &Trace{From: q.From, To: q.To, Samples: []Sample{}}
	t.End, err = j.Run(ctx, q.To-j.start+1, func(s *plan.Step) error {
		if progress != nil {
			progress(s.Step)
		}
		if s.Step < q.From {
			return nil
		}
		return j.trace(ctx, s, files, q.Record, t)
	})
	if err == nil && t.End >= 0 && t.End <= q.From {
		return nil, noSuchStep(q.From, t.End)
	}
	return t, err
}

// trace adds the samples of a step that come from the files, by source.
func (j *Job) trace(ctx context.Context, s *plan.Step, files map[int32]int32, record int64, t *Trace) error {
	var rows []bool
	samples := s.Samples()
	for row, at := 0, int32(0); row < len(s.Rows); row++ {
		wanted := false
		for _, ref := range samples[at : at+s.Rows[row]] {
			hit, err := j.comesFrom(ctx, ref, files, record)
			if err != nil {
				return err
			}
			wanted = wanted || hit
		}
		at += s.Rows[row]
		rows = append(rows, wanted)
	}
	if !slices.Contains(rows, true) {
		return nil
	}
	return j.Locate(ctx, s, func(row int) bool { return rows[row] }, func(x *Sample) error {
		ref := plan.Ref{Source: int32(slices.Index(j.Sources(), x.Source)), Seq: x.Block, Index: x.Index}
		hit, err := j.comesFrom(ctx, ref, files, record)
		if hit {
			t.Samples = append(t.Samples, *x)
		}
		return err
	})
}

func (j *Job) comesFrom(ctx context.Context, ref plan.Ref, files map[int32]int32, record int64) (bool, error) {
	file, ok := files[ref.Source]
	if !ok {
		return false, nil
	}
	p, err := j.Place(ctx, ref)
	return err == nil && p.File == file && (record < 0 || p.Row == record), err
}

// find returns the number of the file in each source that reads it.
func (j *Job) find(q FileQuery) (map[int32]int32, error) {
	names := j.Sources()
	if q.Source != "" && !slices.Contains(names, q.Source) {
		return nil, fault.Userf("there is no source %q%s", q.Source, instead(q.Source, names))
	}
	files := map[int32]int32{}
	var why error
	for i, s := range j.sources {
		if q.Source != "" && q.Source != names[i] {
			continue
		}
		file, err := s.Manifest.Find(q.File)
		if err != nil {
			why = errors.Join(why, fault.Userf("source %q: %w", names[i], err))
			continue
		}
		files[int32(i)] = int32(file)
	}
	if len(files) > 0 {
		return files, nil
	}
	if near := j.nearestFile(q); near != "" {
		return nil, fault.Userf("no source reads a file %q, did you mean %q?", q.File, near)
	}
	return nil, fault.As(fault.User, why)
}

// nearestFile is the file whose name is most like the one asked for.
func (j *Job) nearestFile(q FileQuery) string {
	var names, bases []string
	for _, s := range j.sources {
		if q.Source != "" && q.Source != s.Spec.Name {
			continue
		}
		for i := range s.Manifest.Files {
			name := s.Manifest.Name(int32(i))
			names, bases = append(names, name), append(bases, path.Base(name))
		}
	}
	if near := didyoumean.Nearest(q.File, names); near != "" {
		return near
	}
	if i := slices.Index(bases, didyoumean.Nearest(path.Base(q.File), bases)); i >= 0 {
		return names[i]
	}
	return ""
}

// instead ends a message about an unknown name.
func instead(got string, names []string) string {
	if near := didyoumean.Nearest(got, names); near != "" {
		return ", did you mean \"" + near + "\"?"
	}
	return "; one that is there is \"" + names[0] + "\""
}
