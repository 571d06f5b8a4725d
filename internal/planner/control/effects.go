package control

import (
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Effect is something that the shell has to do, in the order of the effects.
type Effect interface{ effect() }

// Orders to one loader. They depend on nothing that has to be durable.
type (
	// AddSource is a source that joins.
	AddSource struct {
		To     Session
		Source int
		Spec   jobspec.Source // with defaults filled in
		Roots  jobspec.Roots  // what its files must be in; none: it may be read from anywhere
	}
	// Index has a source indexed; Indexed or LoaderFailed answers it. Ahead: a shadow opens
	// it to be ready, and answers only if it cannot, or has other files.
	Index struct {
		To     Session
		Source int
		Ahead  bool
	}
	// Frozen says what a source's manifest has to be.
	Frozen struct {
		To       Session
		Source   int
		Manifest []byte
	}
	// Bans are all banned records of the job.
	Bans struct {
		To  Session
		All []plan.Ban
	}
	// Find has a file looked for; FileFound answers it.
	Find struct {
		To     Session
		Source int
		Name   string
	}
	// Read has the metadata of a block read; BlockRead answers it.
	Read struct {
		To     Session
		Source int32
		Seq    int64
	}
	// Seat says which place a loader has from now on; -1: it is a shadow. It is to say so when
	// it joins again.
	Seat struct {
		To    Session
		Place int
	}
	// Recall makes all Reads and Releases void that were not sent yet: the job goes on from
	// another position.
	Recall struct{}
	// Release lets go of blocks: of each source those before a number.
	Release struct {
		To     Session
		Source []int32
		Before []int64
	}
)

// Orders to one constructor, and what prepares them.
type (
	// Brief tells a constructor the job, as it is on this mesh.
	Brief struct {
		To      Session
		Buckets []uint32 // DP ranks that it serves
		Mesh    *mesh.Tree
	}
	// Joined tells of a source that joined after the start; it has the next number.
	Joined struct {
		To   Session
		Name string
		Keep []string
	}
	// Placement says where the loaders are, by place; plans refer to places. The blocks of
	// Suspects, which are places, rising, are dealt to the others (package placement): their
	// loader is in doubt, or lost, and the address another one's. Shadows are the addresses of
	// those that stand by for each place, "" where nobody does.
	Placement struct {
		To       Session
		Loaders  []string
		Suspects []int
		Shadows  []string
	}
	// Entered is the number of a join that was granted; it rises.
	Entered struct {
		To   Session
		Join uint64
	}
	// Admit says that a rank joins; Admitted answers it.
	Admit struct {
		To       Session
		Join     uint64
		Rank     Rank
		OnlyAsks bool      // nothing becomes void
		Step     int64     // step at which it says that it stands, if it joins again
		Entered  RankEntry // how it had entered the job then
	}
	// Restart opens a generation: everything of those before is void.
	Restart struct {
		To         Session
		Generation uint64
		NextStep   int64
		Remeshed   bool
		Moved      *Moved
		Since      uint64 // ranks that joined at NextStep with a greater number go on; 0: there are none
		Continues  bool   // the generation goes on: what is there stays, and the digests of rows from NextStep on are reported again
		Resent     bool   // the generation has ranks already, which may be further than NextStep
	}
	// Cut is a step that is planned. The shell cuts the parts of the constructors in For,
	// each for its Buckets, and keeps them until Deliver. What it asks the core about the
	// step's blocks (Core.Block) it asks before the next event.
	Cut struct {
		Generation uint64
		Step       *plan.Step
		For        []Part
	}
	// Part names a constructor's part of a step.
	Part struct {
		To      Session
		Buckets []uint32
	}
	// Deliver sends a constructor the part of a step that was cut for it.
	Deliver struct {
		To   Session
		Step int64
	}
	// EndOfData: the ranks of this mesh have no step Step.
	EndOfData struct {
		To         Session
		Generation uint64
		Step       int64
		Topology   string // not empty: the data goes on, for ranks of this mesh
	}
	// Failure tells a constructor that the job has failed.
	Failure struct {
		To  Session
		Err error
	}
	// Refuse ends a constructor's or a loader's session.
	Refuse struct {
		To  Session
		Err error
	}
)

// Moved says what moved the job, for the ranks of the generation before.
type Moved struct {
	By           *Rank // the rank whose join did
	To           int64
	WithoutToken bool
	Topology     string // a change to this mesh did, no join
}

// Answer answers the question with the same ID: with a reply or an error.
type Answer struct {
	ID    uint64
	Reply Reply
	Err   error
	Final bool // the job has failed: to ask again is of no use
}

// The log.
type (
	// OpenLog has the log of the job opened; LogOpened or Begin answers it.
	OpenLog struct {
		Root [32]byte    // the chain value before the first step, which is the log's identity
		Job  token.Job   // for its key frames
		Plan plan.Config // by which its records are replayed
	}
	// Persist makes Ops durable, in order, after those of all Persists before. Persisted
	// answers it.
	Persist struct {
		Seq uint64
		Ops []Op
	}
	// ReadDigest reads the digest beside the record of a step; DigestRead answers it.
	ReadDigest struct{ Step int64 }
	// ReadLog reads what leads to the position At, which the log has; LogRead answers it.
	ReadLog struct {
		At    int64
		Asked uint64 // the question that wants it; 0: the planner itself, which takes over
	}
)

// Op is something that the log does: one of AppendStep, AddChange, SetDigest, Truncate,
// BeginGeneration, Trim.
type Op interface{ op() }

// AppendStep appends the record of a step and, if one is due, a key frame.
type AppendStep struct {
	Step   *plan.Step
	Before plan.State   // the position before it
	Digest [32]byte     // the chain value there; zeros if it is not known yet
	Skips  []token.Skip // bad records that the step is the first to leave out
}

// AddChange adds a change to the journal of the log.
type AddChange struct{ Change change.Change }

// SetDigest notes the chain value of a step beside its record. It may be lost in a
// crash, since it can be computed again.
type SetDigest struct {
	Step   int64
	Digest [32]byte
}

// Truncate opens a branch of the log at a step where the chain has a value. The steps before it
// are the branch's too, as far as the log has them and they lead there.
type Truncate struct {
	From   int64
	Digest [32]byte
}

// BeginGeneration says where a generation begins.
type BeginGeneration struct{ Generation }

// Trim lets go of the steps before one that has a key frame.
type Trim struct{ Before int64 }

// Ended is the end of the data: no step Step, and none after it.
type Ended struct{ Step int64 }

// Failing says that the job has failed.
type Failing struct{ Err error }

// Stop ends the shell: everybody had time to hear why the job failed, or is to look for another planner.
type Stop struct{ Err error }

// Note is a line for the log of messages.
type Note struct {
	Level Level
	Text  string
	Attrs []any // key, value, key, value ...
}

// Level is how much a Note matters.
type Level int8

// Levels, from the least.
const (
	Info Level = iota
	Warn
	Error
)

func (AddSource) effect()  {}
func (Index) effect()      {}
func (Frozen) effect()     {}
func (Bans) effect()       {}
func (Find) effect()       {}
func (Read) effect()       {}
func (Release) effect()    {}
func (Seat) effect()       {}
func (Recall) effect()     {}
func (Brief) effect()      {}
func (Joined) effect()     {}
func (Placement) effect()  {}
func (Entered) effect()    {}
func (Admit) effect()      {}
func (Restart) effect()    {}
func (Cut) effect()        {}
func (Deliver) effect()    {}
func (EndOfData) effect()  {}
func (Failure) effect()    {}
func (Refuse) effect()     {}
func (Answer) effect()     {}
func (OpenLog) effect()    {}
func (Persist) effect()    {}
func (ReadDigest) effect() {}
func (ReadLog) effect()    {}
func (Ended) effect()      {}
func (Failing) effect()    {}
func (Stop) effect()       {}
func (Note) effect()       {}

func (AppendStep) op() {}
func (AddChange) op()  {}
func (SetDigest) op()  {}
func (Truncate) op()   {}

func (BeginGeneration) op() {}
func (Trim) op()            {}
