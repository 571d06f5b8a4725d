package worker

import (
	"net"
	"os"
	"testing"
	"time"
)

// TestNumbers: the kernel gives the number of a worker again before anyone has asked how that one ended. Each hears of its
// own end, and one that nobody knows of stops nothing.
func TestNumbers(t *testing.T) {
	ours, python := wirePair(t)
	s := &server{wire: ours, asking: make(chan struct{}, 1), replies: make(chan serverFrame, 1), gone: make(chan struct{})}
	s.asking <- struct{}{}
	s.tasks.Go(s.read)
	defer ours.conn.Close()
	defer s.tasks.Wait()

	defer python.conn.Close()
	number := os.Getpid() // of no group that a worker could be in
	var workers []*process
	for code := range 3 {
		frames := []map[string]any{{"op": "forked", "pid": number}, {"op": "exited", "pid": number, "code": code}, {"op": "exited", "pid": number, "code": 9}}
		for _, frame := range frames {
			if err := python.send(frame); err != nil {
				t.Fatal(err)
			}
		}
		p, err := s.fork(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		var request ask
		if err := python.receive(&request); err != nil || request.Op != "fork" {
			t.Fatalf("the server was asked %+v: %v", request, err)
		}
		workers = append(workers, p)
	}
	for code, p := range workers {
		select {
		case <-p.exit.told:
			if got := p.exit.frame.Code; got != code {
				t.Errorf("worker %d ended with exit status %d", code, got)
			}
		case <-time.After(exitTime):
			t.Errorf("nobody heard how worker %d ended", code)
		}
	}
}

// wirePair returns the loader's end of a socket, and the other one.
func wirePair(t *testing.T) (ours, theirs *wire) {
	t.Helper()
	ours, socket, err := wires()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	conn, err := net.FileConn(socket)
	if err != nil {
		t.Fatal(err)
	}
	return ours, newWire(conn.(*net.UnixConn))
}
