package control

import (
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// Millis is a time, or a duration, in milliseconds. Times count from when the shell
// started.
type Millis int64

// Seconds of a duration.
func (m Millis) Seconds() float64 { return float64(m) / 1000 }

func (m Millis) String() string { return fmt.Sprintf("%gs", m.Seconds()) }

// Session numbers a connection of a loader or a constructor. The shell gives each its
// own number; a member that comes back has another one.
type Session uint64

// Rank is the place of a trainer rank in the mesh.
type Rank struct{ DP, CP, PP, TP uint32 }

func (r Rank) String() string {
	return fmt.Sprintf("rank dp=%d cp=%d pp=%d tp=%d", r.DP, r.CP, r.PP, r.TP)
}

// Event is something that happened outside of the core.
type Event interface{ event() }

// Tick says what time it is. All deadlines are kept by ticks alone.
type Tick struct{ Now Millis }

// Idle says that nothing else is waiting: the core may draw and place the next step ahead.
type Idle struct{}

// LoaderJoined is a loader that connected. It knows the job spec already.
type LoaderJoined struct {
	Session       Session
	Name, Address string
	Instance      uint64 // of its process; 0: not known
	Workers       int    // blocks it reads at a time
	Buffer        int64  // bytes of samples it has memory for
	Had           int    // the place that it had in another session, plus 1; 0: none
}

// SourceOpened is a source that a shadow has open.
type SourceOpened struct {
	Session Session
	Source  int
}

// Redeal says which places read which source from now on, rising: none of them reads anything else that is not read
// yet. A source that it does not name any more is dealt to one of those that are there.
type Redeal struct{ Table [][]int }

// LoaderLeft ends a loader's session; Err is nil if it ended in order.
type LoaderLeft struct {
	Session Session
	Err     error
}

// ConstructorJoined is a constructor that connected. It is refused (Refuse) if the job
// has no place for it, or another process has its name.
type ConstructorJoined struct {
	Session       Session
	Name, Address string
	Instance      uint64  // of its process; 0: not known
	Held          *Held   // what it kept of an earlier session; nil if that is nothing
	Node          *uint32 // number of the trainers' node that it is on; nil if it is on none
}

// Held is what a constructor has of a job whose planner it lost.
type Held struct {
	Identity   []byte // of the job spec
	Generation uint64
	Next       int64  // it has the plans of the steps before, as far as its ranks need them
	Entered    uint64 // the highest number of a join that it heard of
	Acked      []Acked
	Ranks      []HeldRank
}

// HeldRank is a rank that a constructor serves.
type HeldRank struct {
	Rank       Rank
	Join       uint64    // its last
	Generation uint64    // that it entered with it
	Step       int64     // at which it entered
	Asked      bool      // it asked for a batch, so that both are known
	Entered    RankEntry // how it entered the job, if it joined again since
}

// RankEntry is how a rank entered the job, by a join that did not say where it stood; the zero value is of none.
type RankEntry struct {
	Join       uint64
	Generation uint64
	Step       int64
}

// ConstructorLeft ends a constructor's session; Err is nil if it ended in order.
type ConstructorLeft struct {
	Session Session
	Err     error
}

// Silent says that a member of a session that goes on has said nothing for a while. Heard ends it.
type Silent struct {
	Session Session
	For     Millis
}

// Heard says that a member that was Silent speaks again.
type Heard struct{ Session Session }

// Quiet says that a constructor has missed a few beats, which is nothing by itself; or that this
// ended, as it was heard.
type Quiet struct {
	Session Session
	Ended   bool
}

// Indexed says what a loader's files of a source are.
type Indexed struct {
	Session  Session
	Source   int
	Blocks   uint64 // in one epoch
	Manifest []byte // SHA-256
	Files    uint64
	Bytes    uint64
	Listing  []byte // for Config.Listing
}

// BlockRead reports the samples of a block that was ordered with Read.
type BlockRead struct {
	Session Session
	Block   plan.BlockRead // without what Skips and Absent say of discarded records
	Records uint64
	Skips   []Skip        // bad records, by the source's policy
	Absent  []AbsentField // fields that some of the records lack
	NoLoss  uint64        // samples of which no token carries loss
	Sum     uint64        // checksum of the block; 0: not known
	Chunks  []Chunk       // that the block was made of
}

// Skip is a bad record that was left out.
type Skip struct {
	File   string
	Row    int64
	Reason string
}

func (s Skip) String() string {
	if strings.HasPrefix(s.Reason, s.File) { // it says where
		return s.Reason
	}
	return fmt.Sprintf("%s row %d: %s", s.File, s.Row, s.Reason)
}

// Chunk is what one chunk gave.
type Chunk struct {
	Chunk uint64 // its number in the source
	Sum   uint64
	Place string // file, and which part of it, for messages
}

// FileFound answers Find.
type FileFound struct {
	Source  int
	Name    string // as asked for
	Path    string // as the manifest has it
	Problem string // why there is no path
	Below   int64  // the rows of its records are below this; 0: not known
}

// LoaderFailed is a failure of a loader.
type LoaderFailed struct {
	Session Session
	Source  int   // -1: no one source is to blame
	Block   int64 // of the source, that it could not read; -1: it is not one block
	Err     error
}

// Failed is a failure of a constructor or of the shell itself: it ends the job.
type Failed struct{ Err error }

// Assembled reports the digests of some rows of a step.
type Assembled struct {
	Generation uint64
	Rows       plan.Assembled
}

// Acked says that all ranks of a bucket are done with all steps before Step.
type Acked struct {
	Generation uint64
	Bucket     uint32
	Step       int64
	Slowest    string // the rank that holds the bucket back
	Waits      bool   // that rank itself waits for a batch
	Left       bool   // that rank's client was closed
}

// Lag is how far the ranks of a constructor are, for whoever asks what the job waits for.
type Lag struct {
	Session     Session
	Generation  uint64
	Absent      int    // ranks that have not asked for a batch since they joined
	AbsentRanks []Rank // the first of them
	Left        int    // ranks whose clients were closed
	Slowest     []Acked
	Refused     string // a rank that it refuses as the job was moved, and that is still there
	Crowded     int64  // 1 + the step that has no room in its buffer until ranks have finished others; else 0
	Held, Most  int64  // bytes of that buffer
}

// Admitted answers Admit: how far the rank was before it joined again.
type Admitted struct {
	Session    Session
	Join       uint64
	Generation uint64
	Acked      int64  // steps done in that generation
	Advanced   uint64 // the last join that was granted when Acked became that; 0 if it never changed
}

// Restarted says that a constructor is in a generation from now on.
type Restarted struct {
	Session    Session
	Generation uint64
}

// Done says that no one needs the steps before Step any more. It is for shells that
// have no constructors.
type Done struct{ Step int64 }

// Ask is a question that Answer with the same ID answers, at once or later. IDs are
// never used again.
type Ask struct {
	ID       uint64
	Question Question
}

// Withdraw takes a question back: there will be no answer.
type Withdraw struct{ ID uint64 }

// LogOpened answers OpenLog.
type LogOpened struct {
	Kept        bool  // there is a log: steps and changes become durable in it
	First, Next int64 // the steps that it holds, First <= step < Next
	Trimmed     int64 // the steps before it were let go of
	Changes     []change.Change
	Generations []Generation // by rising number
	Dir         string       // for messages
	Err         error
}

// LogStopped says that the log cannot be used any more, whoever is at fault. Nothing else comes of the log then.
type LogStopped struct{ Err error }

// Generation is a part of the job's history: the job goes on from a step.
type Generation struct {
	Number uint64
	Step   int64
	Since  uint64 // the join after which ranks entered at Step that go on in it; 0: there are none
}

// LogRead answers ReadLog: what leads to the last position at or before the one that was
// asked for of which the log knows the chain value.
type LogRead struct {
	Asked     uint64 // as in ReadLog
	First     int64  // the first step that the log has
	Left      bool   // it does not have what was asked for, and a branch has that the job left
	Parted    bool   // the job left a branch at some time
	At        int64
	Frame     []byte // the last key frame at or before it
	FrameStep int64
	Records   [][]byte   // of the steps from FrameStep up to At
	Digest    [32]byte   // the chain value at At
	Digested  bool       // the log has it beside a record
	Known     [][32]byte // those of the positions that follow, up to the first that is not known; of none if a question asks
	Err       error
}

// Begin answers OpenLog in a shell that has neither log nor trainers: the job goes on
// from a resume token, or a key frame, with changes made on top, which are the operator's or the log's.
type Begin struct {
	Token   []byte
	Changes []change.Change
}

// Persisted answers Persist. After an error nothing more becomes durable. Seq 0 is of no
// Persist: the log failed by itself.
type Persisted struct {
	Seq uint64
	Err error
}

// DigestRead answers ReadDigest.
type DigestRead struct {
	Step   int64
	Digest [32]byte
	Known  bool
}

func (Tick) event()              {}
func (Idle) event()              {}
func (LoaderJoined) event()      {}
func (SourceOpened) event()      {}
func (LoaderLeft) event()        {}
func (Redeal) event()            {}
func (ConstructorJoined) event() {}
func (ConstructorLeft) event()   {}
func (Silent) event()            {}
func (Heard) event()             {}
func (Quiet) event()             {}
func (Indexed) event()           {}
func (BlockRead) event()         {}
func (FileFound) event()         {}
func (LoaderFailed) event()      {}
func (Failed) event()            {}
func (Assembled) event()         {}
func (Acked) event()             {}
func (Lag) event()               {}
func (Admitted) event()          {}
func (Restarted) event()         {}
func (Done) event()              {}
func (Ask) event()               {}
func (Withdraw) event()          {}
func (LogOpened) event()         {}
func (Begin) event()             {}
func (Persisted) event()         {}
func (DigestRead) event()        {}
func (LogRead) event()           {}
func (LogStopped) event()        {}
