package plan_test

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/testdata"
)

var rewrite = flag.Bool("rewrite", false, "write what the core does into the transcripts")

// TestTranscripts plays testdata/*.txt: each command, and below it what the core
// wants done. Commands:
//
//	job rows=2 length=10 ahead=2 window=4 a:blocks=3,weight=0.5,limit=0 ...
//	start
//	block SOURCE SEQ LENGTH...
//	ack STEP
//	assemble STEP ROW...
//	rewind STEP     to a position seen before
//	state           what the core would save
func TestTranscripts(t *testing.T) {
	testdata.Transcripts(t, *rewrite, func(t *testing.T) func(string) string { return (&player{t: t}).do })
}

type player struct {
	t      *testing.T
	cfg    plan.Config
	core   *plan.Core
	states map[int64]plan.State
}

func (p *player) do(command string) string {
	words := strings.Fields(command)
	args := words[1:]
	switch words[0] {
	case "job":
		p.job(args)
		return ""
	case "start":
		return p.effects(p.core.Start())
	case "block":
		ev := plan.BlockRead{Source: p.source(args[0]), Seq: p.number(args[1])}
		for _, n := range args[2:] {
			switch why, count, lost := strings.Cut(n, "="); {
			case !lost:
				ev.Lengths = append(ev.Lengths, int32(p.number(n)))
			case why == "filtered":
				ev.Discarded.Filtered = p.number(count)
			case why == "dropped":
				ev.Discarded.Dropped = p.number(count)
			case why == "empty":
				ev.Discarded.Empty = p.number(count)
			case why == "bad":
				ev.Discarded.Bad = p.number(count)
			default:
				p.t.Fatalf("nothing is lost as %q", why)
			}
		}
		return p.effects(p.core.Apply(ev))
	case "ack":
		return p.effects(p.core.Apply(plan.Acked{Step: p.number(args[0])}))
	case "assemble":
		ev := plan.Assembled{Step: p.number(args[0])}
		for _, r := range args[1:] {
			ev.Rows = append(ev.Rows, uint32(p.number(r)))
			ev.Digests = append(ev.Digests, [32]byte{byte(ev.Step), byte(p.number(r))})
		}
		return p.effects(p.core.Apply(ev))
	case "rewind":
		return p.effects(p.core.Apply(plan.Rewind{State: p.states[p.number(args[0])], Digest: [32]byte{byte(p.number(args[0]))}}))
	case "state":
		return p.state()
	}
	p.t.Fatalf("unknown command %q", command)
	return ""
}

// job makes a new core.
func (p *player) job(args []string) {
	p.cfg = plan.Config{Packing: true, Ahead: 2, Window: 4, Root: [32]byte{42}}
	var weights []float64
	for _, arg := range args {
		name, fields, isSource := strings.Cut(arg, ":")
		if isSource {
			s := plan.Source{Name: name, Blocks: 1}
			weight := 1.0
			for _, f := range strings.Split(fields, ",") {
				key, value, _ := strings.Cut(f, "=")
				switch key {
				case "blocks":
					s.Blocks = p.number(value)
				case "limit":
					s.Limit = p.number(value)
				case "weight":
					weight, _ = strconv.ParseFloat(value, 64)
				}
			}
			p.cfg.Sources, weights = append(p.cfg.Sources, s), append(weights, weight)
			continue
		}
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "rows":
			p.cfg.Rows = int(p.number(value))
		case "length":
			p.cfg.SequenceLength = int32(p.number(value))
		case "ahead":
			p.cfg.Ahead = p.number(value)
		case "window":
			p.cfg.Window = int(p.number(value))
		case "epochs":
			p.cfg.Epochs = p.number(value)
		case "renormalize":
			p.cfg.Renormalize = true
		case "one-sample-rows":
			p.cfg.Packing = false
		case "above":
			p.cfg.Outliers.Thresholds = append(p.cfg.Outliers.Thresholds, int32(p.number(value)))
		case "together":
			p.cfg.Outliers.Release = int(p.number(value))
		case "wait":
			p.cfg.Outliers.Patience = p.number(value)
		case "samples":
			p.cfg.CountSamples = true
		default:
			p.t.Fatalf("unknown field %q", arg)
		}
	}
	p.cfg.Schedule = mix.NewSchedule([]mix.Stage{{Weights: weights}})
	p.core = plan.New(p.cfg)
	p.states = map[int64]plan.State{0: plan.Start(len(weights))}
}

func (p *player) number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *player) source(name string) int32 {
	for i, s := range p.cfg.Sources {
		if s.Name == name {
			return int32(i)
		}
	}
	p.t.Fatalf("no source %q", name)
	return 0
}

func (p *player) effects(effects []plan.Effect) string {
	var b strings.Builder
	for _, e := range effects {
		switch e := e.(type) {
		case plan.Want:
			fmt.Fprintf(&b, "want %s %d\n", p.cfg.Sources[e.Source].Name, e.Seq)
		case plan.Release:
			fmt.Fprintf(&b, "release %s before %d\n", p.cfg.Sources[e.Source].Name, e.Before)
		case plan.Publish:
			p.states[e.Step.After.Step] = e.Step.After.Clone()
			fmt.Fprintf(&b, "publish %d:%s\n", e.Step.Step, p.rows(e.Step))
		case plan.End:
			fmt.Fprintf(&b, "end at %d\n", e.Step)
		case plan.Digested:
			fmt.Fprintf(&b, "digest of %d steps: %x\n", e.Step, e.Digest[:4])
		case plan.Fail:
			fmt.Fprintf(&b, "fail: %v\n", e.Err)
		}
	}
	return b.String()
}

func (p *player) rows(s *plan.Step) string {
	var b strings.Builder
	at := int32(0)
	for _, n := range s.Rows {
		b.WriteString(" [" + p.refs(s.Samples()[at:at+n]) + "]")
		at += n
	}
	if len(s.After.Carry) > 0 {
		b.WriteString(" carry " + p.refs(s.After.Carry))
	}
	if len(s.After.Held) > 0 {
		var refs []plan.Ref
		for _, h := range s.After.Held {
			refs = append(refs, h.Ref)
		}
		b.WriteString(" held " + p.refs(refs))
	}
	return b.String()
}

// refs prints samples as source, block.place and length.
func (p *player) refs(refs []plan.Ref) string {
	var words []string
	for _, r := range refs {
		words = append(words, fmt.Sprintf("%s%d.%d(%d)", p.cfg.Sources[r.Source].Name, r.Seq, r.Index, r.Length))
	}
	return strings.Join(words, " ")
}

func (p *player) state() string {
	s, ok := p.core.State(p.core.Planned())
	if !ok {
		p.t.Fatal("the core does not hold its own position")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d steps acked, %d planned\n", p.core.Acked(), s.Step)
	for i, c := range s.Cursors {
		fmt.Fprintf(&b, "%s: block %d sample %d, %d tokens, %.2f behind\n", p.cfg.Sources[i].Name, c.Seq, c.Index, c.Tokens, float64(c.Deficit)/4096)
	}
	return b.String()
}
