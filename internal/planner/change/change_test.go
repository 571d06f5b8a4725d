package change

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

func TestRefused(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{"step":1}`, "changes one thing, this one 0"},
		{`{"step":1,"pause":"a","drop":"b"}`, "changes one thing, this one 2"},
		{`{"step":-1,"pause":"a"}`, "step is -1"},
		{`{"weights":{"a":-1}}`, `weight of source "a" is -1`},
		{`{"weights":{"a":0,"b":0}}`, "all weights are 0"},
		{`{"weights":{}}`, "all weights are 0"},
		{`{"skip":-3}`, "skip is -3"},
		{`{"sequences":-8}`, "sequences -8"},
		{`{"ban":{"source":"a","row":1}}`, `a ban names source, file and row (from 0), this one source "a", file "" and row 1;`},
		{`{"add":{"source":{},"weight":1}}`, "between 0 and 1"},
		{`{"paus":"a"}`, `did you mean "pause"?`},
		{`{"pause":"web","from":"00"}`, "from is \"00\": it stands beside a topology"},
		{`{"topology":{"dq":2}}`, `no axis "dq": valid are dp, cp`},
		{`{"topology":{"dp":0}}`, "topology.dp is 0"},
		{`{"topology":{}}`, "names no axis"},
		{`{"pause":"a"} {"pause":"b"}`, "more than one JSON object"},
		{`{"pause":`, "unexpected EOF"},
		{`[]`, "cannot unmarshal"},
		{`{"cancel":{"step":3}}`, "changes one thing, this one 0"},
		{`{"step":2,"cancel":{"step":3,"pause":"a"}}`, "is for step 3, not 2"},
		{`{"cancel":{"step":3,"cancel":{"step":3,"pause":"a"}}}`, "make the change again"},
		{`{"cancel":{"step":3,"add":{"source":{},"weight":0.5}}}`, "drop it at the same step"},
	} {
		_, err := Parse([]byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) || fault.ClassOf(err) != fault.User {
			t.Errorf("%s: %v, want a user error with %q", test.text, err, test.want)
		}
	}
	if _, err := Read(strings.NewReader("\n# x\n{}\n"), "f.jsonl"); err == nil || !strings.HasPrefix(err.Error(), "f.jsonl:3: ") {
		t.Errorf("%v, want the file and line", err)
	}
}

// A change survives its own JSON.
func TestRoundTrip(t *testing.T) {
	for _, text := range []string{
		`{"step":7,"weights":{"a":0.1,"b":3}}`, `{"step":0,"schedule":true}`, `{"step":1,"pause":"a"}`,
		`{"step":1,"resume":"a"}`, `{"step":1,"drop":"a"}`, `{"step":1,"sequence_length":8192,"sequences":4}`,
		`{"step":1,"topology":{"dp":4}}`, `{"step":1,"skip":3,"reason":"loss spike"}`,
		`{"step":1,"ban":{"source":"a","file":"f","row":0}}`, `{"step":2,"add":{"source":{"name":"x"},"weight":0.5}}`,
		`{"step":5,"cancel":{"step":5,"weights":{"a":1},"reason":"so"},"reason":"not so"}`,
	} {
		c, err := Parse([]byte(text))
		if err != nil || c.String() != text {
			t.Errorf("%s came back as %s, %v", text, c, err)
		}
	}
}

func TestFind(t *testing.T) {
	sources := []string{"web", "code"}
	if i, err := Find(sources, "code"); i != 1 || err != nil {
		t.Error(i, err)
	}
	for name, want := range map[string]string{"wbe": `did you mean "web"?`, "zzzzzz": "valid are web, code"} {
		if _, err := Find(sources, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

// TestCancelled: a cancellation takes back the last change before it that reads the same.
func TestCancelled(t *testing.T) {
	const skip, pause = `{"step":4,"skip":1}` + "\n", `{"step":4,"pause":"a"}` + "\n"
	const noSkip, noPause = `{"cancel":{"step":4,"skip":1}}` + "\n", `{"cancel":{"step":4,"pause":"a"}}` + "\n"
	for text, want := range map[string]string{
		skip + pause + noSkip:                 pause,
		skip + skip + noSkip:                  skip,
		pause + noPause + skip + pause:        skip + pause,
		skip + noSkip + skip + noSkip + pause: pause,
	} {
		changes, err := Read(strings.NewReader(text), "f")
		if err != nil {
			t.Fatal(err)
		}
		left, err := InForce(changes)
		got := ""
		for _, c := range left {
			got += c.String() + "\n"
		}
		if err != nil || got != want {
			t.Errorf("%s: in force are %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{noSkip, noSkip + skip, skip + noSkip + noSkip, pause + noSkip} {
		changes, err := Read(strings.NewReader(text), "f")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := InForce(changes); err == nil || !strings.HasPrefix(err.Error(), "f:") || !strings.Contains(err.Error(), "no change ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
