package control

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/jobspec"
)

var rewrite = flag.Bool("rewrite", false, "write what the core does into the transcripts")

// TestTranscripts plays testdata/*.txt: each command, and below it what the core
// wants done. Commands:
//
//	job dp=2 constructors=1 loaders=1 shadows=0 hot=0 ahead=2 window=30 absence=0 retain=0 node=0 mirrored=0 web code   a job of these sources, each of 4 blocks of 4 samples; 2 rows per DP rank, node ranks on a node
//	loader l0 [HOST] | constructor c0 | left l0 | lost c0
//	loader l1 id=l0 instance=N | constructor c1 id=c0 instance=N   another process than l1, or c1, with its own number
//	constructor c1 node=1 [...] one on a trainers' node
//	silent l0 SECONDS | heard l0 | quiet c0 | unquiet c0
//	indexed l0 web [other]      l0 has the files of web, or other ones than usual
//	refused l0 web WHY          l0 cannot index web
//	unsteady l0 web SEQ WHY     l0 cannot read a block, and another one may
//	found web FILE PATH | notfound web FILE WHY
//	log [kept [FIRST NEXT [CHANGE]]]  the log is open
//	logfails WHY | logstops WHY
//	persisted [N] | failed WHY  the first N writes that are under way are durable (all of them); the next one fails
//	digest STEP TOKEN | nodigest STEP   what the log has beside a step: the digest of a token
//	bad SOURCE SEQ N            a block has N bad records
//	read                        loaders answer all reads that were asked of them
//	assemble STEP               constructors have assembled all rows of a step
//	ack DP STEP                 the ranks of a DP rank are done with the steps before, which were assembled
//	admit c0 [ACKED [ADVANCED]] c0 answers all questions about ranks
//	restart c0                  c0 is in the newest generation
//	join j0 DP [beginning] [silent=c0] [TOKEN] [GENERATION:STEP]   rank DP joins, with the token that an answer gave, or where it stands
//	planner                     another planner begins with the log as it is: its members come again
//	again                       the log of the planner before is open
//	trim STEP                   the log is cut before a step
//	readlog                     the log answers the first read of a position
//	constructor c0 holds NEXT DP:ACKED... [generation=N]   c0 comes back with what it kept
//	change a0 JSON [TOKEN] | save a0 STEP | past a0 STEP | locate a0 DP | withdraw a0
//	tick SECONDS | fail WHY | status
func TestTranscripts(t *testing.T) {
	testdata.Transcripts(t, *rewrite, func(t *testing.T) func(string) string { return newPlayer(t).do })
}

// player is a core and those around it.
type player struct {
	t          *testing.T
	core       *Core
	names      map[string]uint64 // of sessions and questions
	last       uint64            // number given
	reads      []Read
	bad        map[block]int // bad records of blocks
	writes     []Persist     // under way
	disk       disk
	logReads   []ReadLog // reads of the log that were asked for
	job        []string  // words of the command
	generation uint64    // of the last life
	admits     map[Session][]Admit
	tokens     map[string][]byte // that answers gave, by question
	digests    map[string][32]byte
}

func newPlayer(t *testing.T) *player {
	return &player{t: t, names: map[string]uint64{}, bad: map[block]int{}, admits: map[Session][]Admit{}, tokens: map[string][]byte{}, digests: map[string][32]byte{}}
}

func (p *player) do(command string) string {
	words := strings.Fields(command)
	if words[0] == "job" {
		p.core, p.job = newCore(p.t, words[1:]), words[1:]
		p.disk.reopen()
		return ""
	}
	if words[0] == "older" {
		p.disk.older = true
		return ""
	}
	if words[0] == "status" {
		return p.status()
	}
	var out strings.Builder
	for _, ev := range p.events(words, command) {
		var reads []string // consecutive ones of a loader, in one line
		flush := func() {
			if len(reads) > 0 {
				out.WriteString(strings.Join(reads, " ") + "\n")
			}
			reads = nil
		}
		for _, e := range p.core.Apply(ev) {
			p.note(e)
			r, isRead := e.(Read)
			if !isRead {
				flush()
				out.WriteString(p.show(e))
				continue
			}
			head := p.name(uint64(r.To)) + " <- read " + p.source(int(r.Source))
			if len(reads) == 0 || reads[0] != head {
				flush()
				reads = []string{head}
			}
			reads = append(reads, fmt.Sprint(r.Seq))
		}
		flush()
	}
	return out.String()
}

// newCore makes a job from words of the command `job`.
func newCore(t *testing.T, words []string) *Core {
	n := map[string]int{"dp": 2, "constructors": 1, "loaders": 1, "ahead": 2, "window": 30, "absence": 0}
	var sources, weights []string
	for _, w := range words {
		if key, value, ok := strings.Cut(w, "="); ok {
			n[key], _ = strconv.Atoi(value)
		} else {
			sources = append(sources, fmt.Sprintf("{name: %s, files: %s/*.jsonl, bad_records: {policy: skip, limit: 3}}", w, w))
			weights = append(weights, w+": 1")
		}
	}
	spec := fmt.Sprintf("name: demo\nsources: [%s]\nmix: {weights: {%s}}\nbatch: {sequence_length: 8, sequences: %d}\ntopology: {dp: %d}\nresources: {prefetch: %d, window: 4}\n",
		strings.Join(sources, ", "), strings.Join(weights, ", "), 2*n["dp"], n["dp"], n["ahead"])
	job, findings := jobspec.Parse("demo.yaml", []byte(spec), "/data")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	cfg, err := compile.Plan(job, compile.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Job: job, Plan: cfg, Loaders: n["loaders"], Shadows: n["shadows"], Hot: n["hot"] == 1, Constructors: n["constructors"], AllowRoots: job.Roots(), Window: Millis(n["window"]) * 1000, Absence: Millis(n["absence"]) * 1000,
		NodeRanks: n["node"], Mirrored: n["mirrored"] == 1, Retain: int64(n["retain"]), TrimEvery: diskFrames,
		Listing: func([]byte) (Listing, error) { return Listing{}, nil },
	})
}

// number gives a name its number; a name that is used again has a new one.
func (p *player) number(name string) uint64 {
	p.last++
	p.names[name] = p.last
	return p.last
}

func (p *player) session(name string) Session {
	n, ok := p.names[name]
	if !ok {
		p.t.Fatalf("nobody is called %q", name)
	}
	return Session(n)
}

func (p *player) name(n uint64) string {
	for name, x := range p.names {
		if x == n {
			return name
		}
	}
	return fmt.Sprintf("no-%d", n)
}

func (p *player) source(i int) string {
	if i >= len(p.core.sources.specs) {
		return fmt.Sprintf("source %d", i) // it could not join
	}
	return p.core.sources.specs[i].Name
}

func (p *player) sourceNumber(name string) int {
	i := slices.Index(p.core.sourceNames(), name)
	if i < 0 {
		p.t.Fatalf("there is no source %q", name)
	}
	return i
}

func (p *player) int(words []string, i int, other int64) int64 {
	if i >= len(words) {
		return other
	}
	n, err := strconv.ParseInt(words[i], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// events are those of a command.
func (p *player) events(words []string, command string) []Event {
	rest := func(n int) string { return strings.Join(words[min(n, len(words)):], " ") }
	switch words[0] {
	case "loader":
		id, instance, words := twinOf(words)
		return []Event{LoaderJoined{Session: Session(p.number(words[1])), Name: id, Address: strings.Join(append(words[2:], words[1]), ":"), Instance: instance}}
	case "constructor":
		id, instance, words := twinOf(words)
		var node *uint32
		if len(words) > 2 && strings.HasPrefix(words[2], "node=") {
			n, _ := strconv.Atoi(words[2][len("node="):])
			node, words = new(uint32(n)), slices.Delete(words, 2, 3)
		}
		return []Event{ConstructorJoined{Session: Session(p.number(words[1])), Name: id, Address: words[1], Instance: instance, Held: p.heldBy(words[2:]), Node: node}}
	case "silent":
		return []Event{Silent{p.session(words[1]), Millis(p.int(words, 2, 0)) * 1000}}
	case "heard":
		return []Event{Heard{p.session(words[1])}}
	case "quiet", "unquiet":
		return []Event{Quiet{p.session(words[1]), words[0] == "unquiet"}}
	case "left", "lost":
		return []Event{p.leaving(words[0], words[1])}
	case "indexed":
		return []Event{Indexed{Session: p.session(words[1]), Source: p.sourceNumber(words[2]), Blocks: 4, Manifest: manifestOf(rest(2))}}
	case "opened":
		return []Event{SourceOpened{p.session(words[1]), p.sourceNumber(words[2])}}
	case "redeal": // by source the places that read it, each "0,2"
		var table [][]int
		for _, of := range words[1:] {
			var places []int
			for at := range strings.SplitSeq(of, ",") {
				n, _ := strconv.Atoi(at)
				places = append(places, n)
			}
			table = append(table, places)
		}
		return []Event{Redeal{table}}
	case "refused":
		return []Event{LoaderFailed{Session: p.session(words[1]), Source: p.sourceNumber(words[2]), Block: -1, Err: fault.Userf("%s", rest(3))}}
	case "unreadable":
		return []Event{LoaderFailed{Session: p.session(words[1]), Source: p.sourceNumber(words[2]), Block: p.int(words, 3, 0), Err: fault.Userf("%s", rest(4))}}
	case "unsteady":
		return []Event{LoaderFailed{Session: p.session(words[1]), Source: p.sourceNumber(words[2]), Block: p.int(words, 3, 0), Err: fault.Lostf("%s", rest(4))}}
	case "found":
		return []Event{FileFound{Source: p.sourceNumber(words[1]), Name: words[2], Path: words[3], Below: 100}}
	case "notfound":
		return []Event{FileFound{Source: p.sourceNumber(words[1]), Name: words[2], Problem: rest(3)}}
	case "planner", "again", "readlog", "trim":
		return p.lifeEvents(words)
	case "log":
		return []Event{p.logOpened(words)}
	case "logfails":
		return []Event{LogOpened{Err: fault.Lostf("%s", rest(1))}}
	case "logstops":
		return []Event{LogStopped{fault.Userf("%s", rest(1))}}
	case "persisted", "failed":
		return p.persisted(words)
	case "bad":
		p.bad[block{int32(p.sourceNumber(words[1])), p.int(words, 2, 0)}] = int(p.int(words, 3, 0))
		return nil
	case "read":
		return p.readAll()
	case "tick":
		return p.ticks(Millis(p.int(words, 1, 0)) * 1000)
	case "fail":
		return []Event{Failed{fault.Lostf("%s", rest(1))}}
	case "idle":
		return []Event{Idle{}}
	}
	return p.trainerEvents(words, command)
}

// ticks let time pass, as the shell does.
func (p *player) ticks(d Millis) (events []Event) {
	for now, end := p.core.now, p.core.now+d; now < end; {
		now = min(now+500, end)
		events = append(events, Tick{now})
	}
	return events
}

// trainerEvents are those of commands about ranks and their constructors.
func (p *player) trainerEvents(words []string, command string) []Event {
	switch words[0] {
	case "assemble":
		return []Event{p.assembled(p.int(words, 1, 0))}
	case "ack":
		dp := p.int(words, 1, 0)
		var events []Event // ranks are done with steps that were assembled
		digested, _ := p.core.plan.Missing()
		for step := digested; step < p.int(words, 2, 0) && p.core.job.steps[step] != nil; step++ {
			events = append(events, p.assembled(step))
		}
		return append(events, Acked{Generation: p.core.job.generation, Bucket: uint32(dp), Step: p.int(words, 2, 0), Slowest: Rank{DP: uint32(dp)}.String()})
	case "admit":
		return p.admitAll(p.session(words[1]), p.int(words, 2, 0), uint64(p.int(words, 3, 0)))
	case "restart":
		return []Event{Restarted{p.session(words[1]), p.core.job.generation}}
	case "digest":
		return []Event{DigestRead{Step: p.int(words, 1, 0), Digest: p.digests[words[2]], Known: true}}
	case "nodigest":
		return []Event{DigestRead{Step: p.int(words, 1, 0)}}
	case "withdraw":
		return []Event{Withdraw{p.names[words[1]]}}
	}
	return []Event{Ask{p.number(words[1]), p.question(words, command)}}
}

// assembled are the digests of all rows of a step.
func (p *player) assembled(step int64) Event {
	ev := plan.Assembled{Step: step}
	if p.core.job.steps[step] == nil {
		p.t.Fatalf("step %d is not planned", step)
	}
	for row := range p.core.job.steps[step].Rows {
		ev.Rows, ev.Digests = append(ev.Rows, uint32(row)), append(ev.Digests, sha256.Sum256(fmt.Append(nil, step, row)))
	}
	return Assembled{p.core.job.generation, ev}
}

// admitAll answers all questions about ranks that a constructor was asked so far.
func (p *player) admitAll(s Session, acked int64, advanced uint64) (events []Event) {
	for _, a := range p.admits[s] {
		events = append(events, Admitted{Session: s, Join: a.Join, Generation: p.core.job.generation, Acked: acked, Advanced: advanced})
	}
	p.admits[s] = nil
	return events
}

func (p *player) question(words []string, command string) Question {
	switch words[0] {
	case "join":
		q := Join{Rank: Rank{DP: uint32(p.int(words, 2, 0))}}
		for _, w := range words[3:] {
			generation, step, stands := strings.Cut(w, ":")
			switch {
			case stands:
				q.At = &Position{uint64(p.int([]string{generation}, 0, 0)), p.int([]string{step}, 0, 0)}
			case strings.HasPrefix(w, "silent="):
				q.Silent = strings.TrimPrefix(w, "silent=")
			case w == "beginning":
				q.Beginning = true
			default:
				q.Token = p.tokens[w]
			}
		}
		return q
	case "locate":
		return Locate{Rank{DP: uint32(p.int(words, 2, 0))}}
	case "past":
		return Past{p.int(words, 2, 0)}
	case "save":
		return Save{p.int(words, 2, 0)}
	case "change":
		text := command[strings.Index(command, "{") : strings.LastIndex(command, "}")+1]
		ch, err := change.Parse([]byte(text))
		if err != nil {
			p.t.Fatal(err)
		}
		return MakeChange{ch, p.tokens[strings.TrimSpace(command[strings.LastIndex(command, "}")+1:])]}
	}
	p.t.Fatalf("unknown command %q", command)
	return nil
}

func manifestOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

func (p *player) leaving(how, name string) Event {
	var err error
	if how == "lost" {
		err = fault.Lostf("the network broke")
	}
	if strings.HasPrefix(name, "l") {
		s := p.session(name)
		p.reads = slices.DeleteFunc(p.reads, func(r Read) bool { return r.To == s })
		return LoaderLeft{s, err}
	}
	return ConstructorLeft{p.session(name), err}
}

func (p *player) logOpened(words []string) Event {
	ev := LogOpened{Kept: len(words) > 1, Dir: "/log", First: p.int(words, 2, 0), Next: p.int(words, 3, 0)}
	for _, text := range words[min(4, len(words)):] {
		ch, err := change.Parse([]byte(text))
		if err != nil {
			p.t.Fatal(err)
		}
		ev.Changes = append(ev.Changes, ch)
	}
	return ev
}

// persisted ends writes that are under way.
func (p *player) persisted(words []string) (events []Event) {
	n := len(p.writes)
	if words[0] == "failed" {
		return []Event{Persisted{p.writes[0].Seq, fault.Lostf("%s", strings.Join(words[1:], " "))}}
	}
	for range p.int(words, 1, int64(n)) {
		w := p.writes[0]
		events = append(events, Persisted{w.Seq, p.disk.write(p.core.id, w.Ops)})
		p.writes = p.writes[1:]
	}
	return events
}

// readAll answers the reads that were asked of loaders so far. Blocks have 4 samples of 8 tokens.
func (p *player) readAll() (events []Event) {
	for _, r := range p.reads {
		block := plan.BlockRead{Source: r.Source, Seq: r.Seq, Lengths: []int32{8, 8, 8, 8}, Bans: len(p.core.journal.bans)}
		ev := BlockRead{Session: r.To, Block: block}
		for n := range p.bad[blockOf(r)] {
			ev.Skips = append(ev.Skips, Skip{fmt.Sprintf("%s/%d.jsonl", p.source(int(r.Source)), r.Seq), int64(n), "no JSON"})
		}
		events = append(events, ev)
	}
	p.reads = nil
	return events
}

func blockOf(r Read) block { return block{r.Source, r.Seq} }

// note remembers what has to be answered.
func (p *player) note(e Effect) {
	switch e := e.(type) {
	case Read:
		p.reads = append(p.reads, e)
	case ReadLog:
		p.logReads = append(p.logReads, e)
	case Persist:
		p.writes = append(p.writes, e)
	case Admit:
		p.admits[e.To] = append(p.admits[e.To], e)
	case Answer:
		switch r := e.Reply.(type) {
		case SaveReply:
			p.tokens[p.name(e.ID)], p.digests[p.name(e.ID)] = r.Token, r.Digest
		case JoinReply:
			p.tokens[p.name(e.ID)] = r.Token
		}
	}
}

func (p *player) status() string {
	s := p.core.Snapshot()
	return fmt.Sprintf("%s, generation %d, %d planned, %d done; waits for %s\n", s.State, s.Generation, s.Planned, s.Acked, s.WaitingFor)
}
