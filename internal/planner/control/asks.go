package control

import (
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Question is something that others ask: one of Join, Locate, Save, Past, MakeChange, Report.
type Question interface{ question() }

// Join positions the job for a rank; JoinReply answers it.
type Join struct {
	Rank      Rank
	Sizes     Rank // of the mesh that the rank believes in; 0: not to be checked
	Token     []byte
	At        *Position // where it stands, if it joined before; Token counts if that is not known here
	Beginning bool      // begin at the first step, whatever others do
	Silent    string    // address of the constructor that said nothing to the rank since its last batch; "": none did
}

// Position is a step of a generation.
type Position struct {
	Generation uint64
	Step       int64
}

// Locate asks which constructor serves a rank; JoinReply answers it, without a position.
type Locate struct{ Rank Rank }

// Save asks for the resume token of the position after Step steps; SaveReply answers it.
type Save struct{ Step int64 }

// Past asks for the resume token of a step that the job holds: that it stands at, or that is in
// its log. SaveReply answers it.
type Past struct{ Step int64 }

// MakeChange makes a change, from the position of Token if there is one; ChangeReply
// answers it.
type MakeChange struct {
	Change change.Change
	Token  []byte
}

// Report is what a rank measured at a step; it has no reply but an error.
type Report struct {
	Step        int64
	Rank        Rank
	Sources     []string
	Losses      []float64
	Tokens      []uint64
	StepSeconds float64 // 0: not known
}

func (Join) question()       {}
func (Locate) question()     {}
func (Save) question()       {}
func (Past) question()       {}
func (MakeChange) question() {}
func (Report) question()     {}

// Reply is what an Answer says.
type Reply interface{ reply() }

// JoinReply says where a rank's batches are.
type JoinReply struct {
	Generation   uint64
	NextStep     int64
	Constructor  string // address
	Fetches      bool   // false: a broadcast serves the rank
	Mesh         *mesh.Tree
	Sources      []string // of the job spec
	Microbatches int
	Token        []byte // of NextStep
	Join         uint64
}

// SaveReply is a position: its resume token, and the chain value there.
type SaveReply struct {
	Token  []byte
	Digest [32]byte
}

// ChangeReply is the first step that a change applies to. With a token, the steps from there to before VoidTo were
// planned, and are void.
type ChangeReply struct{ Step, VoidTo int64 }

func (JoinReply) reply()   {}
func (SaveReply) reply()   {}
func (ChangeReply) reply() {}

// topics are what questions wait for; a set.
type topics uint16

const (
	onMembers   topics = 1 << iota // loaders, constructors, and the start of the job
	onHeard                        // what one question alone waits for; asked.heard says which
	onRestarted                    // constructors that come into a generation
	onMove                         // the position of the job
	onRoster                       // other ranks
	onSources                      // sources that are indexed, or cannot join
	onFiles                        // files that are looked for
	onPlanned                      // steps that are planned, or done
	onDigest                       // steps that are assembled
	onTick                         // time
	onLog                          // what is read of the log
)

// maxQuestions bounds the joins, states and changes that wait for an answer: four of each of
// 4096 ranks.
const maxQuestions = 16_384

var errQuestions = fault.Lostf("%d requests wait for the planner, which is the limit max_questions: try again later", maxQuestions)

// asks are the questions that wait for an answer.
type asks struct {
	waiting []*asked // in the order in which they came
	raised  topics   // that questions may wait for, and that moved
	waits   topics   // of the question that is tried
}

// asked is a question that waits.
type asked struct {
	id    uint64
	waits topics
	heard bool // what it alone waits for has come
	since Millis
	try   func(a *asked) (reply Reply, done bool, err error)
	join  *join    // of a Join
	read  *LogRead // of a Past: what the log has
}

func newAsks() asks { return asks{} }

// raise says that what some questions wait for has moved.
func (c *Core) raise(t topics) { c.asks.raised |= t }

// wait says what the question that is tried waits for.
func (c *Core) wait(t topics) { c.asks.waits |= t }

// ask tries a question, and keeps it if it has to wait.
func (c *Core) ask(ev Ask) {
	a := &asked{id: ev.ID, since: c.now}
	switch q := ev.Question.(type) {
	case Join:
		c.reported(q)
		a.join = &join{ask: a, req: q}
		a.try = func(*asked) (Reply, bool, error) { return c.proceed(a.join) }
	case Locate:
		a.try = func(*asked) (Reply, bool, error) { return c.locate(q) }
	case Save:
		a.try = (&saving{core: c, step: q.Step}).try
	case Past:
		a.try = (&past{core: c, step: q.Step}).try
	case MakeChange:
		a.try = func(*asked) (Reply, bool, error) { return c.makeChange(q) }
	case Report:
		a.try = func(*asked) (Reply, bool, error) { return nil, true, c.measured(q) }
	}
	if c.try(a) {
		return
	}
	if len(c.asks.waiting) >= maxQuestions {
		c.leave(a)
		c.send(Answer{ID: a.id, Err: errQuestions})
		return
	}
	c.asks.waiting = append(c.asks.waiting, a)
}

// try tries a question; true if it is answered.
func (c *Core) try(a *asked) bool {
	if c.failed != nil {
		c.emit(Answer{ID: a.id, Err: c.failed, Final: true})
		return true
	}
	c.asks.waits, a.heard = 0, false
	reply, done, err := a.try(a)
	if a.waits = c.asks.waits; !done && err == nil {
		return false
	}
	c.leave(a)
	switch {
	case c.failed != nil:
		c.emit(Answer{ID: a.id, Err: c.failed, Final: true})
	case err != nil:
		c.send(Answer{ID: a.id, Err: err})
	case a.join != nil:
		c.answerJoin(Answer{ID: a.id, Reply: reply})
	default:
		c.send(Answer{ID: a.id, Reply: reply})
	}
	return true
}

// leave forgets what else is known of a question that ends.
func (c *Core) leave(a *asked) {
	if j := a.join; j != nil {
		if c.roster.leave(j) {
			c.raise(onRoster)
		}
		if j.constructor != nil {
			delete(j.constructor.joins, j.number)
		}
		c.forgetRefused(j.token)
	}
}

// answer tries the questions again that wait for what moved, and once more if that moved
// something: a join opens the way for changes.
func (c *Core) answer() {
	for c.asks.raised != 0 && len(c.asks.waiting) > 0 {
		moved := c.asks.raised
		c.asks.raised = 0
		waiting := c.asks.waiting[:0]
		for _, a := range c.asks.waiting {
			if c.failed == nil && a.waits&moved == 0 && !a.heard || !c.try(a) {
				waiting = append(waiting, a)
			}
		}
		clear(c.asks.waiting[len(waiting):])
		c.asks.waiting = waiting
	}
	c.asks.raised = 0
}

// withdraw forgets a question, and its answer if that waits for the log.
func (c *Core) withdraw(id uint64) {
	c.out.drop(func(e Effect) bool { a, ok := e.(Answer); return ok && a.ID == id })
	c.unheard.withdraw(id)
	c.asks.waiting = slices.DeleteFunc(c.asks.waiting, func(a *asked) bool {
		if a.id != id {
			return false
		}
		c.leave(a)
		return true
	})
}

// makeChange makes a change, or takes it as far as it goes now.
func (c *Core) makeChange(q MakeChange) (Reply, bool, error) {
	if len(q.Token) > 0 {
		return c.proceedFrom(q.Change, q.Token)
	}
	step, done, err := c.proceedChange(q.Change)
	return ChangeReply{Step: step}, done, err
}

// locate answers where a rank's batches are.
func (c *Core) locate(q Locate) (Reply, bool, error) {
	m := c.constructorOf(q.Rank.DP)
	if c.plan == nil || m == nil {
		c.wait(onMembers)
		return nil, false, nil
	}
	if err := c.checkMesh(q.Rank, Rank{}, c.job.tree, false); err != nil {
		return nil, false, err
	}
	return c.where(q.Rank, m), true, nil
}
