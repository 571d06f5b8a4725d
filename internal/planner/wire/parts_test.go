package wire

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestBlockParts: blocks that come in parts, those of two in turn, are what they were; parts
// without end are refused with the limit's name.
func TestBlockParts(t *testing.T) {
	var of [2][]*pb.BlockRead
	var want [2]*pb.BlockRead
	for b := range of {
		want[b] = &pb.BlockRead{Source: 4, Seq: uint64(b), Bytes: 77, Filtered: 3}
		for i := range 1_200_000 {
			want[b].Lengths = append(want[b].Lengths, uint32(i+b))
		}
		for part, more := range rpc.Parts(want[b]) {
			part.Source, part.Seq, part.More = 4, uint64(b), more
			of[b] = append(of[b], part)
		}
	}
	var parts BlockParts
	wrap := func(b *pb.BlockRead) *pb.LoaderReport {
		return &pb.LoaderReport{Report: &pb.LoaderReport_Block{Block: b}}
	}
	for i := range of[0] {
		for b := range of {
			got, err := parts.Add(wrap(of[b][i]))
			if err != nil {
				t.Fatal(err)
			}
			if last := i == len(of[b])-1; (got != nil) != last || last && !proto.Equal(got.GetBlock(), want[b]) {
				t.Fatalf("block %d is whole after part %d of %d: %v", b, i, len(of[b]), got != nil)
			}
		}
	}
	for _, whole := range []*pb.LoaderReport{wrap(&pb.BlockRead{Source: 1}), {Report: &pb.LoaderReport_Usage{Usage: &pb.LoaderUsage{}}}} {
		if got, err := parts.Add(whole); got != whole || err != nil {
			t.Errorf("what is whole: %v %v", got, err)
		}
	}
	parts.bytes = maxReport - 200
	endless := wrap(&pb.BlockRead{Lengths: make([]uint32, 100), More: true})
	if _, err := parts.Add(endless); err != nil {
		t.Errorf("before the limit: %v", err)
	}
	if _, err := parts.Add(endless); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "limit max_report") {
		t.Errorf("parts without end: %v", err)
	}
}
