package rpc

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

// TestFinal checks that what ended a job is never told in a way that clients
// take for an invitation to ask again.
func TestFinal(t *testing.T) {
	cause := errors.New("the disk is full")
	for from, to := range map[fault.Class]fault.Class{fault.User: fault.User, fault.Bug: fault.Bug, fault.Lost: fault.User} {
		err := Final(fault.As(from, cause))
		if fault.ClassOf(err) != to || !errors.Is(err, cause) || !strings.Contains(err.Error(), cause.Error()) {
			t.Errorf("Final of a %s error: %s error %v", from, fault.ClassOf(err), err)
		}
		if heard := FromStatus(ToStatus(err)); fault.ClassOf(heard) == fault.Lost {
			t.Errorf("a %s error is heard as lost: %v", from, heard)
		}
	}
}
