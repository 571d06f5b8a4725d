package constructor

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/constructor/deliver"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/hostmem"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestLateTicket: a rank that was stopped between its ticket and its line tries again.
func TestLateTicket(t *testing.T) {
	s := &sharing{tickets: map[hostmem.Ticket]ticket{}}
	late, err := s.issue(ticket{deliver.Rank{}, 1, time.Now().Add(-time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.admit(late[:]); fault.ClassOf(rpc.FromStatus(refusal(err))) != fault.Lost {
		t.Errorf("class %v: %v", fault.ClassOf(rpc.FromStatus(refusal(err))), err)
	}
}

// TestLateHello: so does one that was stopped between its line and its first word.
func TestLateHello(t *testing.T) {
	t.Parallel()
	socket, err := hostmem.Listen(t.TempDir())
	if err != nil {
		t.Skip("no memory is shared here: ", err)
	}
	defer socket.Close()
	rank, err := hostmem.Dial(t.Context(), socket.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer rank.Close()
	line, err := socket.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := &Constructor{sharing: &sharing{tickets: map[hostmem.Ticket]ticket{}}}
	go c.serveLine(t.Context(), line, func() {})
	m, err := rank.Receive()
	if err != nil || m.Kind != hostmem.Refusal {
		t.Fatalf("a message of kind %d, %v", m.Kind, err)
	}
	if err := rpc.FromStatus(status.Error(codes.Code(m.Number), string(m.Payload))); fault.ClassOf(err) != fault.Lost {
		t.Errorf("class %v: %v", fault.ClassOf(err), err)
	}
}
