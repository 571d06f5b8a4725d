// Package failpoint names the places in the roles at which tests end, stop or delay a
// process, or make an operation fail.
//
// It owns the list of the sites and, in a binary built with the tag failpoint, what
// happens at them: MILLRACE_FAILPOINTS=SITE=ACTION@N, separated by commas, carries out
// ACTION when SITE is passed for the Nth time (N is 1 if it is left out). An action is kill
// (SIGKILL to the process itself), stop (SIGSTOP), sleep(DURATION), or error, which only
// sites that can return one carry out. What was carried out is appended to the file that
// MILLRACE_FAILPOINT_HITS names, before it is. Without the tag, every function here is
// empty and the compiler leaves nothing of a call. It never decides anything for a role.
package failpoint

// Site is a place in the code of a role.
type Site string

// Sites of the planner.
const (
	AppendBefore  Site = "planner.append.before"  // a step is planned, its record is not written
	AppendAfter   Site = "planner.append.after"   // its record is durable, its plan not sent
	DeliverBefore Site = "planner.deliver.before" // before a part of a plan goes to a constructor
	DeliverMiddle Site = "planner.deliver.middle" // after one of the parts of a plan
	Join          Site = "planner.join"           // a rank asks to join
	Change        Site = "planner.change"         // a change is to be written
	DigestBefore  Site = "planner.digest.before"  // a step's digest is known, and not written
	FenceBefore   Site = "planner.fence.before"   // an earlier planner's log is open, its epoch is not raised
	FenceAfter    Site = "planner.fence.after"    // the epoch is raised, nobody heard of it
	OpenAfter     Site = "planner.open.after"     // the log is open and read, nothing is planned
	TrimBefore    Site = "planner.trim.before"    // a key frame is durable, the log holds the steps before it still
)

// Sites of the log, which are in the planner's process.
const (
	SyncBefore Site = "log.sync.before" // a batch is complete, and not committed
	SyncAfter  Site = "log.sync.after"  // it is durable, its mark is not written
	MarkAfter  Site = "log.mark.after"  // its mark is written, it is not acknowledged
	TornWrite  Site = "log.write.torn"  // half of a write to the log's newest file is done
)

// Sites of loaders.
const (
	ReadAfter     Site = "loader.read.after"     // a block is read, the planner does not know
	ReadBefore    Site = "loader.read.before"    // a block is about to be read
	FetchMiddle   Site = "loader.fetch.middle"   // some samples of an answer are gathered
	IndexBefore   Site = "loader.index.before"   // a source is indexed, the planner does not know
	ReleaseMiddle Site = "loader.release.middle" // blocks are out of the queue, and not out of memory
)

// Sites of constructors.
const (
	PlanTaken      Site = "constructor.plan.taken"      // a plan has come, nothing of it is fetched
	BuildAfter     Site = "constructor.build.after"     // a step is built, the planner does not know
	DeliverReady   Site = "constructor.deliver.ready"   // its digests are reported, no rank has it
	FrameMiddle    Site = "constructor.frame.middle"    // half of a rank's answer is sent
	AckBefore      Site = "constructor.ack.before"      // ranks have acknowledged, the planner does not know
	RestartApplied Site = "constructor.restart.applied" // a generation begins, the planner does not know
	FetchBefore    Site = "constructor.fetch.before"    // one loader of a step is about to be asked
)

// Role is what a site's process runs.
type Role string

// The roles.
const (
	Planner     Role = "planner"
	Loader      Role = "loader"
	Constructor Role = "constructor"
)

// Info says what a site is.
type Info struct {
	Site  Site
	Role  Role // whose process passes it
	Fails bool // it can return an error
}

// Sites are all sites, in the order of the tables that list them.
var Sites = []Info{
	{AppendBefore, Planner, true}, {AppendAfter, Planner, false}, {DeliverBefore, Planner, false}, {DeliverMiddle, Planner, false},
	{Join, Planner, false}, {Change, Planner, false}, {DigestBefore, Planner, false},
	{FenceBefore, Planner, false}, {FenceAfter, Planner, false}, {OpenAfter, Planner, false}, {TrimBefore, Planner, false},
	{SyncBefore, Planner, true}, {SyncAfter, Planner, false}, {MarkAfter, Planner, false}, {TornWrite, Planner, false},
	{ReadBefore, Loader, true}, {ReadAfter, Loader, false}, {FetchMiddle, Loader, true}, {IndexBefore, Loader, false}, {ReleaseMiddle, Loader, false},
	{PlanTaken, Constructor, false}, {FetchBefore, Constructor, true}, {BuildAfter, Constructor, false}, {DeliverReady, Constructor, false},
	{FrameMiddle, Constructor, false}, {AckBefore, Constructor, false}, {RestartApplied, Constructor, false},
}

// Variables of the environment that a binary with the tag reads.
const (
	Env     = "MILLRACE_FAILPOINTS"
	EnvHits = "MILLRACE_FAILPOINT_HITS"
	// EnvSmallLog has a planner's log get a key frame every SmallLog steps, keep twice as many if
	// it is to keep any number, and let go of as many at a time: runs of some dozen steps have it.
	EnvSmallLog = "MILLRACE_FAILPOINT_SMALL_LOG"
)
