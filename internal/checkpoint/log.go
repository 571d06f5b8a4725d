package checkpoint

import "errors"

var (
	// ErrClosed is returned by the methods of a Log after Close.
	ErrClosed = errors.New("the log is closed")
	// ErrInUse is wrapped by the error for a log that somebody else has open.
	ErrInUse = errors.New("it is locked")
	// ErrOrder is wrapped by the error for a step that cannot follow, or that
	// the log does not reach back to.
	ErrOrder = errors.New("step out of order")
	// ErrDiverged is wrapped by the error for a step that the log holds with
	// other bytes: what was replayed is not what was done.
	ErrDiverged = errors.New("step differs from the log")
	// ErrDamaged is wrapped by the error for a log whose files do not say what was
	// written to them.
	ErrDamaged = errors.New("is damaged")
	// ErrDeposed is wrapped by the error for a write after which another writer has taken
	// over the log: its epoch is higher. The class is fault.Lost.
	ErrDeposed = errors.New("has taken over")
)

// MaxBytes bounds a record and its frame together. Real ones have kilobytes; a
// gigabyte is a mistake, and Pebble's limit is not far above.
const MaxBytes = 1 << 30

// Log is the log of one job: the steps from a first to a last without a hole, each with
// its record, some with a key frame and a digest, the changes to the job, its generations
// and the epochs of those who wrote it. Package logtest is what every Log must do.
//
// All methods are safe for concurrent use. Those that write wait for each other and
// return when what they wrote is durable; they may take as long as the disk does. Readers
// wait for nobody and see only what is durable. Bytes are copied on the way in, and belong
// to the caller on the way out unless a method says otherwise.
//
// Once a Log has stopped, every method but Last, First, Branches, Branch, Trimmed, Epoch and Place fails with the cause:
// an error of class fault.Lost for a disk or a folder, fault.User for damage, for which
// the message has the next thing to do. The process should then end.
type Log interface {
	Reader

	// Write does several operations in order, all or none, and returns when they are
	// durable: one sync for all, where each method below has one of its own. Digests are
	// no reason to sync. After an error of any operation nothing has changed, but for one
	// of class fault.Lost, which stops the log. No operation is nothing to do.
	Write(ops ...Op) error

	// Append stores the record of step and, if frame is not nil, a key frame for
	// step with it, both or neither.
	//
	// step is the one after Last; an empty log takes any step >= 0. A step that the
	// log holds already is a replay: equal bytes change nothing (a frame that was
	// left out before is added), other bytes are an error that wraps ErrDiverged.
	// Other steps are refused with an error that wraps ErrOrder.
	Append(step int64, record, frame []byte) error

	// SetDigest stores the chained content digest of a delivered step. Unlike other
	// writes it may be lost in a crash for a moment longer: it is durable after the next
	// Append, after a quarter of a second, or after Close. The step must be in the
	// log, else the error wraps ErrOrder; another digest for the same step is an error
	// that wraps ErrDiverged.
	SetDigest(step int64, digest [32]byte) error

	// Truncate leaves the steps from the given one on, with their frames and digests, and
	// opens a branch: the log ends before that step, and what is appended is the new branch's.
	// What was left is read with Branch. Changes stay. Steps that the log does not hold are
	// nothing to leave.
	Truncate(from int64) error

	// Trim lets go of the steps before the last key frame at or before the given step, in
	// all branches, so that the log begins with a key frame. A log without such a frame keeps
	// all. Trimmed says the step from then on.
	Trim(before int64) error

	// AddChange stores a change to the job: an external input, which nothing else
	// could give back. Changes are numbered from 0 as they come.
	AddChange(change []byte) error

	// Fence raises the epoch of the log: whoever writes it from now on does so under this
	// epoch, and is the only one. It is durable on return. An epoch that is not above
	// Epoch is refused with an error that wraps ErrOrder.
	Fence(epoch uint64) error

	// SetGeneration notes that generation g.Number begins at g.Step. It is durable on
	// return. A generation that the log has is a replay: the same step changes nothing,
	// another one is an error that wraps ErrDiverged. Numbers rise; a lower one that the
	// log does not have is refused with an error that wraps ErrOrder. Truncate leaves
	// generations alone.
	SetGeneration(g Generation) error

	// Stopped returns a channel that is closed when the log has stopped for good.
	// Err then says why; it returns nil before.
	Stopped() <-chan struct{}
	Err() error
}

// Steps is what a branch of a log holds.
type Steps interface {
	// First and Last return the first and the last step; ok is false while there is none.
	First() (step int64, ok bool)
	Last() (step int64, ok bool)

	// Records calls fn with each record of the steps from <= step < to that the log
	// holds, in order. The record is valid during the call only. An error of fn ends
	// it and is returned as it is. fn may use the log, but not close it; it sees the
	// records as they were when Records was called.
	Records(from, to int64, fn func(step int64, record []byte) error) error

	// Frame returns the last key frame of a step <= atOrBefore, and its step; ok is
	// false if there is none.
	Frame(atOrBefore int64) (step int64, frame []byte, ok bool, err error)

	// ReadDigest returns the digest that SetDigest stored for step; ok is false if
	// there is none.
	ReadDigest(step int64) (digest [32]byte, ok bool, err error)
}

// Reader is what can be read of a Log, and the end of its use. Its Steps are those of the branch
// that is written.
type Reader interface {
	Steps

	// Branches returns all branches by rising number; the last one is that which is written.
	Branches() []Branch

	// Branch returns the steps that lead to the end of a branch. They are read as long as the
	// log is open. The error is of class fault.User.
	Branch(number uint64) (Steps, error)

	// Trimmed returns the highest step that Trim was given, 0 if it never was.
	Trimmed() int64

	// Changes returns all changes in the order in which they were added.
	Changes() (changes [][]byte, err error)

	// Epoch returns the highest epoch that was fenced, 0 for a log without one.
	Epoch() uint64

	// Epochs returns all epochs that were fenced, by rising number.
	Epochs() ([]Epoch, error)

	// Place returns the Place of the last Write; ok is false if it had none.
	Place() (p Place, ok bool)

	// Generations returns all generations by rising number.
	Generations() ([]Generation, error)

	// Close ends the use of the log. It waits for calls in progress; after a failure
	// it waits for nothing and returns the cause. A second Close returns nil.
	Close() error
}
