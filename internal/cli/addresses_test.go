package cli

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/client"
)

// TestSeveralAddresses: verbs that ask a service take the list of addresses that its roles and trainers are given, and ask the one
// that serves.
func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := serve(t, dir)
	c, err := open(t, s, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	nobody := freeAddress(t)
	for _, list := range []string{nobody + "," + s.address, s.address + ", " + nobody} {
		r := millrace(t, dir, "status", list)
		r.expect(t, 0)
		if !strings.Contains(r.stdout, "job tiny: running") {
			t.Errorf("the status at %s is\n%s", list, r.stdout)
		}
		millrace(t, dir, "mix", "set", list, "words=0.5", "notes=0.5").expect(t, 0)
		millrace(t, dir, "source", "pause", list, "words").expect(t, 0)
		millrace(t, dir, "source", "resume", list, "words").expect(t, 0)
		millrace(t, dir, "skip", list, "--steps", "1").expect(t, 0)
		r = millrace(t, dir, "changes", list)
		r.expect(t, 0)
		if !strings.Contains(r.stdout, `"pause":"words"`) {
			t.Errorf("the changes at %s are\n%s", list, r.stdout)
		}
	}
	other := freeAddress(t)
	millrace(t, dir, "status", nobody+","+other).expect(t, exitLost, "asking "+other, "--tls-*")
	millrace(t, dir, "status", nobody+",").expect(t, exitUser, `address "" is none`)
}
