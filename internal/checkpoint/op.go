package checkpoint

import "fmt"

// Op is one operation of a Write: one of Append, SetDigest, Truncate, Fork, Trim, InBranch,
// AddChange, Fence, SetGeneration and Place. Each does what the method of Log that has its name does.
type Op interface {
	op()
	String() string // what it does, for messages
}

type (
	// Append is Log.Append.
	Append struct {
		Step          int64
		Record, Frame []byte // no Frame: nil
	}
	// SetDigest is Log.SetDigest.
	SetDigest struct {
		Step   int64
		Digest [32]byte
	}
	// Truncate is Log.Truncate.
	Truncate struct{ From int64 }
	// Fork opens a branch, like Truncate, after another branch than the one that is written: the
	// steps of Parent before From are the new branch's too. A copy of the log that does not have
	// the step before From there has none of them: it leaves all.
	Fork struct {
		Number uint64 // of the new branch; the next that is free if it is taken
		Parent uint64
		From   int64
	}
	// Trim is Log.Trim.
	Trim struct{ Before int64 }
	// InBranch numbers the branch of what follows, in a log that has no step: a copy of another
	// one that begins in the middle of it. The number must be above that of every branch
	// which has steps.
	InBranch struct{ Number uint64 }
	// AddChange is Log.AddChange.
	AddChange struct{ Change []byte }
	// Fence is Log.Fence.
	Fence struct{ Epoch uint64 }
	// SetGeneration is Log.SetGeneration.
	SetGeneration struct{ Generation }
	// Place says which place of a copy of the log the Write leads to, the whole group:
	// Log.Place returns it, up to the next Write without one. The log itself makes
	// nothing of it.
	Place struct {
		Slot  uint64   // the next of the copy
		Chain [32]byte // of all that the copy has before it
	}
)

func (Append) op()        {}
func (SetDigest) op()     {}
func (Truncate) op()      {}
func (Fork) op()          {}
func (Trim) op()          {}
func (InBranch) op()      {}
func (AddChange) op()     {}
func (Fence) op()         {}
func (SetGeneration) op() {}
func (Place) op()         {}

// String implements Op.
func (o Append) String() string { return fmt.Sprintf("appending step %d", o.Step) }

// String implements Op.
func (o SetDigest) String() string { return fmt.Sprintf("setting the digest of step %d", o.Step) }

// String implements Op.
func (o Truncate) String() string { return fmt.Sprintf("truncating at step %d", o.From) }

// String implements Op.
func (o Fork) String() string {
	return fmt.Sprintf("going on at step %d, in branch %d, after branch %d", o.From, o.Number, o.Parent)
}

// String implements Op.
func (o Trim) String() string { return fmt.Sprintf("letting go of the steps before %d", o.Before) }

// String implements Op.
func (o InBranch) String() string { return fmt.Sprintf("going on in branch %d", o.Number) }

// String implements Op.
func (o AddChange) String() string { return "storing a change" }

// String implements Op.
func (o Fence) String() string { return fmt.Sprintf("fencing epoch %d", o.Epoch) }

// String implements Op.
func (o SetGeneration) String() string { return fmt.Sprintf("storing generation %d", o.Number) }

// String implements Op.
func (o Place) String() string { return fmt.Sprintf("noting slot %d", o.Slot) }
