package preview

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// Probe reads the first n records of every source of a job, and says what is wrong with
// them: as errors what would stop the job, as warnings what makes it poorer. Findings have
// the fields of the spec that they are about, and no lines. It ends early with ctx.
func Probe(ctx context.Context, st store.Store, functions transform.Functions, job *jobspec.Job, n int64) (all []jobspec.Finding) {
	shared := transform.NewShared(job.Seed, functions)
	for i := range job.Sources {
		if ctx.Err() != nil {
			return all
		}
		f := finder{field: fmt.Sprintf("sources[%d]", i), spec: &job.Sources[i]}
		src, err := sourceloader.Open(ctx, st, job, i, shared)
		if err != nil {
			f.ends(err)
		} else {
			f.probe(ctx, st, src, n)
		}
		all = append(all, f.findings...)
	}
	return all
}

// finder collects what is found in one source.
type finder struct {
	field    string
	spec     *jobspec.Source
	findings []jobspec.Finding
}

func (f *finder) find(below string, warning bool, message, valid string) {
	f.findings = append(f.findings, jobspec.Finding{Field: f.field + below, Message: message, Valid: valid, Warning: warning})
}

// ends tells of what ends the reading.
func (f *finder) ends(err error) {
	f.findings = append(f.findings, jobspec.Finding{Field: f.field + ".files", Message: err.Error(), Lost: fault.ClassOf(err) == fault.Lost})
}

func (f *finder) probe(ctx context.Context, st store.Store, src *sourceloader.Source, n int64) {
	p, err := src.Probe(ctx, st, n)
	skips := f.spec.BadRecords.Policy == "skip"
	f.absent(src.Chain, p, skips)
	if p.Bad > 0 {
		f.find("", skips, fmt.Sprintf("%s cannot be used, the first: %v", Count(int64(p.Bad), "record"), p.First), "")
	}
	if bad := p.Bad + p.Lacked; skips && bad > uint64(f.spec.BadRecords.Limit) {
		f.find(".bad_records", false, fmt.Sprintf("%s are bad, more than limit %d allows", Count(int64(bad), "record"), f.spec.BadRecords.Limit), "mend the data, or raise the limit")
	}
	if err != nil {
		f.ends(err)
		return
	}
	f.lost(p)
	f.noLoss(p)
}

// lost tells of records that gave no sample, be they too long or without a token; filtered ones are meant, unless
// all are.
func (f *finder) lost(p *sourceloader.Probe) {
	said := fmt.Sprintf("%d too long, %d empty", p.Dropped, p.Empty)
	var remedy []string
	switch {
	case p.Dropped > 0 && f.spec.Long.Rule == "drop":
		remedy = append(remedy, "write long: split or truncate, or a larger batch.sequence_length")
	case p.Dropped > 0: // images and sounds are never cut
		remedy = append(remedy, "write a larger batch.sequence_length, or fewer tokens for an image (max_pixels) or a sound")
	}
	if p.Empty > 0 {
		remedy = append(remedy, "mend the records without a token, or leave them out by a filter")
	}
	switch {
	case p.Kept == 0 && p.Bad+p.Lacked == 0:
		f.find("", true, fmt.Sprintf("the first %s give no sample: %d are filtered out, %s", Count(int64(p.Records), "record"), p.Filtered, said), strings.Join(remedy, "; "))
	case len(remedy) > 0:
		f.find("", true, fmt.Sprintf("%d of the first %s give no sample: %s", p.Dropped+p.Empty, Count(int64(p.Records), "record"), said), strings.Join(remedy, "; "))
	}
}

// noLoss tells of a source that nothing is learned from.
func (f *finder) noLoss(p *sourceloader.Probe) {
	count := control.NoLoss{Samples: p.NoLoss, Of: p.Samples}
	if !count.All() {
		return
	}
	field, message, remedy := "", count.String(), ""
	for k, t := range f.spec.Transforms {
		switch t := t.(type) {
		case *jobspec.Chat:
			field = "." + f.spec.StepField(k)
			message += fmt.Sprintf("; train_on is %s, and the messages have the roles %s", t.TrainOn, strings.Join(p.Roles, ", "))
			remedy = chatRemedy(p.Roles)
		case jobspec.LossMask:
			field, remedy = "."+f.spec.StepField(k), "correct the column: it has a 1 for each token that carries loss"
		}
	}
	f.find(field, true, message, remedy)
}

// chatRemedy says how messages of some roles come to carry loss.
func chatRemedy(roles []string) string {
	if slices.Contains(roles, "assistant") {
		return "look at the answers: they are empty, say themselves that they carry no loss, or long cuts them off"
	}
	return "rename the role of what the model is to write to assistant, by a python step, or give such messages a field loss, or write train_on: all"
}

// absent tells of the fields that records lack.
func (f *finder) absent(chain *transform.Chain, p *sourceloader.Probe, skips bool) {
	columns, users := chain.Columns(), chain.Users()
	for i, path := range columns {
		for _, a := range p.Absent {
			field := control.AbsentField{Field: path, Records: a.Records, Of: p.Records, Hint: a.Hint}
			switch {
			case a.Path != path:
			case chain.Requires(i):
				f.find(f.step(users[i]), skips && !field.Nowhere(), field.String(), requiredRemedy)
			case field.Nowhere():
				f.find(f.step(users[i]), true, field.String(), "correct the name")
			}
		}
	}
}

const requiredRemedy = "correct the name, or write {field?} in a template if records may lack it"

// step names a step of the chain as the spec has it: one that was left to the default has
// no place of its own there.
func (f *finder) step(user string) string {
	if user == "" {
		return ".keep"
	}
	return "." + user
}
