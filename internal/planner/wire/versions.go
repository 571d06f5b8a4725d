package wire

import (
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// This file is what the planner leaves out for roles of the version before its own: an order
// that they do not know would end their session, or mean nothing to them.

// ToLoader sends a loader the orders that its version knows.
func ToLoader(version uint32, send func(*pb.LoaderOrder) error) func(*pb.LoaderOrder) error {
	return func(o *pb.LoaderOrder) error {
		switch o.Order.(type) {
		case *pb.LoaderOrder_Epoch, *pb.LoaderOrder_Beat:
			if version < rpc.Sessions {
				return nil
			}
		}
		return send(o)
	}
}

// ToConstructor sends a constructor the orders that its version knows.
func ToConstructor(version uint32, send func(*pb.ConstructorOrder) error) func(*pb.ConstructorOrder) error {
	return func(o *pb.ConstructorOrder) error {
		switch o.Order.(type) {
		case *pb.ConstructorOrder_Epoch, *pb.ConstructorOrder_Beat:
			if version < rpc.Sessions {
				return nil
			}
		}
		return send(o)
	}
}
