package wire

import (
	"reflect"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
)

// TestLoaderJoined: a loader that names no memory has what the job says.
func TestLoaderJoined(t *testing.T) {
	want := control.LoaderJoined{Session: 3, Name: "l0", Address: "10.0.0.1:1", Instance: 7, Workers: 4, Had: 2}
	for buffer, has := range map[uint64]int64{0: 100, 50: 50, 200: 200} {
		want.Buffer = has
		hello := &pb.LoaderHello{Id: "l0", Address: "10.0.0.1:1", Instance: 7, Workers: 4, Place: 2, Buffer: buffer}
		if got := LoaderJoined(3, hello, 100); got != want {
			t.Errorf("memory of %d: %+v, want %+v", buffer, got, want)
		}
	}
}

// TestConstructorJoined: a constructor tells what it kept and on which node it is, or neither.
func TestConstructorJoined(t *testing.T) {
	node := uint32(0)
	for name, c := range map[string]struct {
		hello *pb.ConstructorHello
		want  control.ConstructorJoined
	}{
		"a new one": {&pb.ConstructorHello{Id: "c0", Address: "10.0.0.3:1", Instance: 7}, control.ConstructorJoined{Session: 3, Name: "c0", Address: "10.0.0.3:1", Instance: 7}},
		"on a node": {&pb.ConstructorHello{Id: "c0", Node: &node}, control.ConstructorJoined{Session: 3, Name: "c0", Node: &node}},
		"one that comes back": {
			&pb.ConstructorHello{Id: "c0", Held: &pb.Held{
				Identity: []byte{1}, Generation: 2, Next: 5, Entered: 6,
				Acked: []*pb.Acked{{Generation: 2, Bucket: 1, Step: 4}},
				Ranks: []*pb.HeldRank{{Rank: &pb.Coordinates{Dp: 1}, Join: 6, Generation: 2, Step: 3, Asked: true}},
			}},
			control.ConstructorJoined{Session: 3, Name: "c0", Held: &control.Held{
				Identity: []byte{1}, Generation: 2, Next: 5, Entered: 6,
				Acked: []control.Acked{{Generation: 2, Bucket: 1, Step: 4}},
				Ranks: []control.HeldRank{{Rank: control.Rank{DP: 1}, Join: 6, Generation: 2, Step: 3, Asked: true}},
			}},
		},
	} {
		if got := ConstructorJoined(3, c.hello); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestRootsOfSources: a loader hears what data of a source that joins may be in, and what its functions may be in, which is
// all that one of a version before asks.
func TestRootsOfSources(t *testing.T) {
	orders := NewOrders(&jobspec.Job{}, 4, 0)
	_, order, _ := orders.Loader(control.AddSource{To: 1, Source: 2, Roots: jobspec.Roots{Data: []string{"/data"}, Code: []string{"/code", "/data"}}})
	if add := order.GetAdd(); !reflect.DeepEqual(add.Roots, []string{"/code", "/data"}) || !reflect.DeepEqual(add.DataRoots, []string{"/data"}) {
		t.Errorf("a loader hears %v and %v", add.Roots, add.DataRoots)
	}
}
