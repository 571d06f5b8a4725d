package sourceloader

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/planner/compile"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
)

// fill sets every field to something that is none of the others, and says how many.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("/", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Interface: // a step
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic(v.Kind())
	}
}

// throughWire is what a loader gets of the source of a job that is number 7.
func throughWire(t *testing.T, job *jobspec.Job, source jobspec.Source) (*pb.Assignment, jobspec.Source) {
	t.Helper()
	bytes, err := proto.Marshal(compile.Assignment(job, 7, source))
	if err != nil {
		t.Fatal(err)
	}
	got := &pb.Assignment{}
	if err := proto.Unmarshal(bytes, got); err != nil {
		t.Fatal(err)
	}
	return got, assigned(got)
}

// TestAssignment: each field of a source reaches the loader, but for those that are the
// planner's. A new field of the spec fails this until someone decides which it is.
func TestAssignment(t *testing.T) {
	n := 0
	var source jobspec.Source
	fill(reflect.ValueOf(&source).Elem(), &n)
	source.BadRecords.Policy = "skip"
	source.Transforms = nil
	for _, o := range jobspec.Operators() {
		step := reflect.New(reflect.TypeOf(o.New())).Elem()
		fill(step, &n)
		source.Transforms = append(source.Transforms, step.Interface().(jobspec.Transform))
		if image, ok := step.Interface().(*jobspec.Image); ok { // one without a marker has a message of its own
			plain := *image
			plain.Marker, plain.MarkerID = "", 0
			source.Transforms = append(source.Transforms, &plain)
		}
	}
	a, got := throughWire(t, &jobspec.Job{Dir: "/spec"}, source)
	want := source
	want.Limit, want.BadRecords = 0, jobspec.BadRecords{Policy: "skip"} // how many samples and bad records are taken the planner says
	if a.Source != 7 || !reflect.DeepEqual(got, want) {
		t.Errorf("source %d:\n%+v\nwant\n%+v", a.Source, got, want)
	}
	if n < 40 {
		t.Errorf("%d fields were tried", n)
	}
}

// TestAssignmentResolves: paths of an assignment need no folder of the spec, and what a
// record policy says holds for a policy that skips nothing, too.
func TestAssignmentResolves(t *testing.T) {
	job, findings := jobspec.Parse("j.yaml", []byte(`
name: j
sources:
  - {name: a, files: [x/*.jsonl, /abs.jsonl], transforms: [{tokenize: {encoding: r50k_base, ranks: r50k.tiktoken}}, {append_eod: {}}]}
  - {name: b, files: y.bin}
batch: {sequence_length: 16, sequences: 2, context_split: 2}
output: {format: megatron-thd}
mix: {weights: {a: 0.5, b: 0.5}}
topology: {cp: 2}
`), "/spec")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	resolved := job.ResolvedSources()
	for i, source := range job.Sources {
		_, got := throughWire(t, job, source)
		if want := resolved[i]; !reflect.DeepEqual(got.Files, want.Files) || !reflect.DeepEqual(got.Transforms, want.Transforms) || got.BadRecords.Policy != "stop" {
			t.Errorf("source %d: %+v, want %+v", i, got, want)
		}
	}
	out := compile.LoaderJob(job)
	if out.LongestSample != 32 || out.BufferBytes != 512<<20 || out.DiskBytes != 4<<30 || out.Seed != job.Seed || len(out.Sources) != 2 || out.Sources[1].Source != 1 {
		t.Errorf("the job is %v", out)
	}
}

// TestUnknownStep: a step of a newer planner is an error, not left out.
func TestUnknownStep(t *testing.T) {
	l := loaderOf(t, "", 3)
	a := proto.CloneOf(l.job.Sources[0])
	a.Source, a.Implied = 1, 0
	for i, step := range []*pb.TransformStep{
		{},
		{Step: &pb.TransformStep_Operator{Operator: &pb.OperatorStep{Name: "fold", Fields: []byte("{}")}}},
		{Step: &pb.TransformStep_Operator{Operator: &pb.OperatorStep{Name: "python", Fields: []byte(`{"Function":"a:b","Gpus":1}`)}}},
	} {
		a := proto.CloneOf(a)
		a.Source, a.Transforms[0] = uint32(1+i), step
		if err := l.add(a); err != nil {
			t.Fatal(err)
		}
		if _, err := l.source(t.Context(), a.Source); err == nil || !strings.Contains(err.Error(), "transforms[0]: this version has no such step") {
			t.Errorf("step %v: %v", step, err)
		}
	}
	a.Source = 9
	if err := l.add(a); err == nil {
		t.Error("a source was taken in far behind the others")
	}
}
