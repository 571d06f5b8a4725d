package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/millrace-data/millrace/internal/proto"
)

type steps struct {
	pb.UnimplementedConstructorServer
	size int
}

func (s *steps) Deliver(stream grpc.BidiStreamingServer[pb.DeliverRequest, pb.Frame]) error {
	body, pace := make([]byte, s.size), Pace{}
	for {
		if _, err := stream.Recv(); err != nil {
			return nil
		}
		if err := SendPart(stream, &pace, binary.BigEndian.AppendUint64(nil, uint64(s.size)), body, nil); err != nil {
			return err
		}
	}
}

// BenchmarkSteps streams steps over loopback, two ahead of the receiver.
func BenchmarkSteps(b *testing.B) {
	for _, size := range []int{1 << 18, 1 << 20, 8 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			listener, err := Listen("127.0.0.1:0", Security{})
			if err != nil {
				b.Fatal(err)
			}
			server, err := NewServer(Security{}, limits(MaxAsk)...)
			if err != nil {
				b.Fatal(err)
			}
			pb.RegisterConstructorServer(server, &steps{size: size})
			go server.Serve(listener)
			defer server.Stop()
			conn, err := Dial(Address(listener), Security{})
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			stream, err := pb.NewConstructorClient(conn).Deliver(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			for range 2 {
				if err := stream.Send(&pb.DeliverRequest{}); err != nil {
					b.Fatal(err)
				}
			}
			var body []byte
			for b.Loop() {
				if err := stream.Send(&pb.DeliverRequest{}); err != nil {
					b.Fatal(err)
				}
				body, err = ReceivePart(stream, func(head []byte) (uint64, error) { return binary.BigEndian.Uint64(head), nil }, body)
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
