package rpc

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// fill gives every field of a message a value, whatever fields it has: n of those that repeat, of up to some bits.
func fill(m protoreflect.Message, rng *rand.Rand, n int, bits uint) {
	number := func() uint32 { return 1 + rng.Uint32()>>(32-bits) }
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.IsList() && f.Message() != nil:
			list := m.Mutable(f).List()
			for range 3 {
				fill(list.AppendMutable().Message(), rng, n, bits)
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range n {
				list.Append(protoreflect.ValueOfUint32(number()))
			}
		case f.Message() != nil:
			fill(m.Mutable(f).Message(), rng, n, bits)
		case f.Kind() == protoreflect.Uint32Kind:
			m.Set(f, protoreflect.ValueOfUint32(number()))
		default:
			m.Set(f, protoreflect.ValueOfUint64(uint64(number())<<8))
		}
	}
}

// TestPlanIsProtobuf reads with plain protobuf a plan that the codec sends, with a value in every field that it has or will
// have, in the size that plain protobuf gives it.
func TestPlanIsProtobuf(t *testing.T) {
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for _, bits := range []uint{1, 7, 8, 13, 14, 16, 21, 28, 31} {
		for _, n := range []int{1, smallPlan, smallPlan + 1 + rng.IntN(20_000)} {
			plan := &pb.StepPlan{}
			fill(plan.ProtoReflect(), rng, n, bits)
			if bits == 13 {
				plan.RowWidth, plan.Images = nil, nil // as of most jobs
			}
			sent := &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Plan{Plan: plan}}
			wire := wireOf(t, sent)
			got := &pb.ConstructorOrder{}
			if err := proto.Unmarshal(wire, got); err != nil || !proto.Equal(got, sent) {
				t.Fatalf("%d numbers of up to %d bits in a column: a plan arrives as another one: %v", n, bits, err)
			}
			if want := proto.Size(sent); len(wire) != want {
				t.Errorf("%d numbers of up to %d bits in a column: %d bytes, want %d", n, bits, len(wire), want)
			}
		}
	}
}

// TestPlanKeepsUnknownFields sends on what a later version wrote.
func TestPlanKeepsUnknownFields(t *testing.T) {
	plan := &pb.StepPlan{SampleIndex: make([]uint32, smallPlan)}
	plan.ProtoReflect().SetUnknown([]byte{200 | 0x80, 1, 7})
	sent := &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Plan{Plan: plan}}
	got := &pb.ConstructorOrder{}
	if err := proto.Unmarshal(wireOf(t, sent), got); err != nil || !proto.Equal(got, sent) {
		t.Fatalf("got %v, %v, want the unknown field", got.GetPlan().ProtoReflect().GetUnknown(), err)
	}
}

// BenchmarkPlan encodes a part of a step of 306,000 samples for one of 16 constructors.
func BenchmarkPlan(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	plan := &pb.StepPlan{}
	for range 19_000 {
		plan.SampleBlock = append(plan.SampleBlock, rng.Uint32N(330))
		plan.SampleIndex = append(plan.SampleIndex, rng.Uint32N(8000))
		plan.SampleLength = append(plan.SampleLength, 1+uint32(110*rng.ExpFloat64()))
	}
	order := &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Plan{Plan: plan}}
	b.Run("columns", func(b *testing.B) {
		for b.Loop() {
			data, err := Codec().Marshal(order)
			if err != nil {
				b.Fatal(err)
			}
			data.Free()
		}
	})
	b.Run("general", func(b *testing.B) {
		for b.Loop() {
			if _, err := proto.Marshal(order); err != nil {
				b.Fatal(err)
			}
		}
	})
}
