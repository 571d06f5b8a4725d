package worker

import "testing"

// forks is a module of functions that fork a process, which comes back in the way that the text says.
const forks = `
import os, sys
import millrace

def forked(way):
    pid = os.fork()
    if pid:
        return f"{way} {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}"
    if way == "exits":
        sys.exit(3)
    if way == "exits with words":
        sys.exit("words")
    if way == "raises":
        raise ValueError("the child's")
    return "the child's"

@millrace.transform
def f(text: str) -> str:
    return forked(text)

@millrace.transform("map_batches")
def whole(text: list[str]) -> list[str]:
    return [forked(text[0])] + text[1:]

class Forks:
    def __init__(self):
        self.what = forked(self.way)

    def __call__(self, text: str) -> str:
        return f"{text}: {self.what}"

@millrace.transform
class Exits(Forks):
    way = "exits"

@millrace.transform
class Returns(Forks):
    way = "returns"
`

// TestForkedAnswersNothing: a process that a function forks answers no batch of its parent's, however it comes back.
func TestForkedAnswersNothing(t *testing.T) {
	opt := options(t)
	opt.Workers, opt.Functions = 1, []string{"forks:f"}
	withModule(t, &opt, "forks", forks)
	e := open(t, opt)
	for _, name := range []string{"f", "whole", "Exits", "Returns"} {
		f, err := e.Function(t.Context(), Use{Name: "forks:" + name})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // the next answers are to the next questions
			switch name {
			case "f":
				expect(t, called(t, f, texts("exits", "raises", "returns", "exits with words")), `0:0 "exits 3"`, `1:10 "raises 1"`, `2:20 "returns 0"`, `3:30 "exits with words 1"`)
			case "whole":
				expect(t, called(t, f, texts("exits", "a")), `0:0 "exits 3"`, `1:10 "a"`)
				expect(t, called(t, f, texts("raises", "a")), `0:0 "raises 1"`, `1:10 "a"`)
				expect(t, called(t, f, texts("returns", "a")), `0:0 "returns 0"`, `1:10 "a"`)
			case "Exits":
				expect(t, called(t, f, texts("a")), `0:0 "a: exits 3"`)
			case "Returns":
				expect(t, called(t, f, texts("a")), `0:0 "a: returns 0"`)
			}
		}
	}
	if n := e.Status().Restarts; n != 0 {
		t.Errorf("%d workers ended", n)
	}
}
