package control

import (
	"fmt"
	"strings"
)

// show writes an effect as a line of a transcript; "" for what readers need not see.
func (p *player) show(e Effect) string {
	to := func(s Session, format string, args ...any) string {
		return p.name(uint64(s)) + " <- " + fmt.Sprintf(format, args...) + "\n"
	}
	switch e := e.(type) {
	case AddSource:
		return to(e.To, "source %d joins: %s", e.Source, e.Spec.Name)
	case Index:
		return to(e.To, "index %s%s", p.source(e.Source), map[bool]string{true: " ahead"}[e.Ahead])
	case Frozen:
		return to(e.To, "the files of %s are %x", p.source(e.Source), e.Manifest[:3])
	case Bans:
		return to(e.To, "%d bans", len(e.All))
	case Find:
		return to(e.To, "find %s of %s", e.Name, p.source(e.Source))
	case Read:
		return to(e.To, "read %s %d", p.source(int(e.Source)), e.Seq)
	case Release:
		return to(e.To, "release %d before %d", e.Source, e.Before)
	case Brief:
		return to(e.To, "the job, ranks %d of %s", e.Buckets, e.Mesh.Canonical())
	case Joined:
		return to(e.To, "source %s joins", e.Name)
	case Placement:
		return to(e.To, "loaders are %s", e.text())
	case Entered:
		return to(e.To, "join %d is granted", e.Join)
	case Admit:
		entered := ""
		if in := e.Entered; in.Join > 0 {
			entered = fmt.Sprintf(", which stands at step %d, and entered at step %d by join %d", e.Step, in.Step, in.Join)
		}
		return to(e.To, "join %d of %s%s%s", e.Join, e.Rank, map[bool]string{true: ", who may have to wait"}[e.OnlyAsks], entered)
	case Restart:
		return to(e.To, "generation %d from step %d on%s", e.Generation, e.NextStep, e.how())
	case Deliver:
		return to(e.To, "its part of step %d", e.Step)
	case EndOfData:
		return to(e.To, "the data ends at step %d%s", e.Step, map[bool]string{true: ", for ranks of this mesh"}[e.Topology != ""])
	case Failure:
		return to(e.To, "the job has failed: %v", e.Err)
	case Refuse:
		return to(e.To, "refused: %v", e.Err)
	}
	return p.showOther(e)
}

func (e Placement) text() string {
	text := strings.Join(e.Loaders, " ")
	for _, i := range e.Suspects {
		text += fmt.Sprintf(", not place %d", i)
	}
	for i, s := range e.Shadows {
		if s != "" {
			text += fmt.Sprintf(", %s beside %d", s, i)
		}
	}
	return text
}

func (e Restart) how() string {
	text := ""
	if e.Continues {
		text += ", which goes on"
	}
	if e.Resent {
		text += ", or further"
	}
	if e.Remeshed {
		text += ", for another mesh"
	}
	if e.Since > 0 {
		text += fmt.Sprintf("; ranks that joined after join %d go on", e.Since)
	}
	return text
}

func (p *player) showOther(e Effect) string {
	switch e := e.(type) {
	case Cut:
		var names []string
		for _, part := range e.For {
			names = append(names, p.name(uint64(part.To)))
		}
		return strings.TrimSpace(fmt.Sprintf("cut step %d for %s", e.Step.Step, strings.Join(names, " "))) + "\n"
	case Answer:
		return p.name(e.ID) + " = " + showAnswer(e) + "\n"
	case OpenLog:
		return "log <- open\n"
	case Persist:
		var out strings.Builder
		for _, op := range e.Ops {
			out.WriteString("log <- " + showOp(op) + "\n")
		}
		return out.String()
	case ReadLog:
		return fmt.Sprintf("log <- read what leads to step %d\n", e.At)
	case ReadDigest:
		return fmt.Sprintf("log <- read the digest of step %d\n", e.Step)
	case Ended:
		return fmt.Sprintf("the data ends at step %d\n", e.Step)
	case Failing:
		return fmt.Sprintf("the job has failed: %v\n", e.Err)
	case Stop:
		return "stop\n"
	case Note:
		if e.Level == Warn {
			return "warning: " + e.Text + "\n"
		}
	}
	return ""
}

func showAnswer(a Answer) string {
	switch r := a.Reply.(type) {
	case JoinReply:
		return fmt.Sprintf("step %d of generation %d, at %s, join %d", r.NextStep, r.Generation, r.Constructor, r.Join)
	case SaveReply:
		return fmt.Sprintf("a token of %d bytes", len(r.Token))
	case ChangeReply:
		if r.VoidTo > r.Step {
			return fmt.Sprintf("from step %d on, void to before %d", r.Step, r.VoidTo)
		}
		return fmt.Sprintf("from step %d on", r.Step)
	}
	if a.Err == nil {
		return "done"
	}
	return fmt.Sprintf("%v%s", a.Err, map[bool]string{true: " (final)"}[a.Final])
}

func showOp(op Op) string {
	switch op := op.(type) {
	case AppendStep:
		text := fmt.Sprintf("step %d", op.Step.Step)
		for _, s := range op.Skips {
			text += fmt.Sprintf(", without row %d of %s", s.Row, s.File)
		}
		return text
	case AddChange:
		return "change " + op.Change.String()
	case SetDigest:
		return fmt.Sprintf("digest of step %d", op.Step)
	case BeginGeneration:
		return fmt.Sprintf("generation %d begins at step %d", op.Number, op.Step)
	case Trim:
		return fmt.Sprintf("lets go of the steps before %d", op.Before)
	case Truncate:
		return fmt.Sprintf("branch at step %d", op.From)
	}
	return "?"
}

// recipient is the member that an effect is for.
func recipient(e Effect) (Session, bool) {
	switch e := e.(type) {
	case AddSource:
		return e.To, true
	case Index:
		return e.To, true
	case Frozen:
		return e.To, true
	case Bans:
		return e.To, true
	case Find:
		return e.To, true
	case Read:
		return e.To, true
	case Release:
		return e.To, true
	case Seat:
		return e.To, true
	case Failure:
		return e.To, true
	}
	return addressee(e)
}
