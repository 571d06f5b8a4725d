package telemetry

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// Kind says how a metric's values go on.
type Kind string

// A Counter only rises while its process lives, a Gauge is what it is now.
const (
	Counter Kind = "counter"
	Gauge   Kind = "gauge"
)

// Metric describes one of the numbers.
type Metric struct {
	Name   string   // OpenTelemetry's form; Prometheus has underscores, the unit and _total
	Kind   Kind     //
	Unit   string   // as UCUM has it: s, By, 1, {step}
	Labels []string // OpenTelemetry's attributes
	Help   string   // one sentence
}

// JobName is the first label of all that a planner shows: one Prometheus may look at several jobs.
const JobName = "job_name"

// OfJob takes values of metrics whose first label is JobName, without it.
func (put Observe) OfJob(name string) Observe {
	return func(m ID, value float64, labels ...string) { put(m, value, append([]string{name}, labels...)...) }
}

// ID names a metric: its place in Metrics.
type ID int

// The metrics: of the planner, of loaders, of constructors, and of each process.
const (
	JobState ID = iota
	StepPlanned
	StepAcked
	PlanLead
	PlanAhead
	PlanFill
	PlanCarried
	PlanHeld
	HoldupTime
	TrainersWaitShare
	StallBy
	PlannerEpoch
	PlannerGeneration
	PlannerStale
	PlannerAppendsRefused
	Members
	MembersWanted
	MemberSessions
	RankJoins
	RanksByWay
	Promotions
	BlocksAskedAgain
	SourceLag
	SourceTokens
	SourceSamples
	SourceShare
	SourceShareScheduled
	SourceEpoch
	SourceRecords

	LoaderMemory
	LoaderMemoryLimit
	LoaderDisk
	LoaderDiskLimit
	LoaderDiskProblem
	LoaderRead
	LoaderBlocks
	LoaderRereads
	LoaderStale
	StageTasks
	StageQueued
	FunctionWorkers
	FunctionWaiting
	FunctionRestarts

	ConstructorMemory
	ConstructorMemoryLimit
	ConstructorDelivered
	ConstructorBatches
	ConstructorFetchTime
	ConstructorAssembleTime
	ConstructorSteps
	ConstructorHedges
	ConstructorAbsent
	ConstructorStale
	RankWait
	RankStep

	GPUBusy
	GPUMultiprocessors
	GPUTensor
	GPUReceived

	CertificateEnds
	CertificateEndsSoon
	ProcessCPU
	ProcessMemory
	GoMemory
	GoMemoryLimit
	GoGoroutines

	count
)

// Metrics are all of them, by ID.
var Metrics = [count]Metric{
	JobState:              {"millrace.job.state", Gauge, "", []string{JobName, "state"}, "1 for the state that the job is in: starting, running, ended or failed."},
	StepPlanned:           {"millrace.step.planned", Gauge, "{step}", []string{JobName}, "Steps that are planned; lower after the job was moved back."},
	StepAcked:             {"millrace.step.acked", Gauge, "{step}", []string{JobName}, "Steps that all ranks are done with."},
	PlanLead:              {"millrace.plan.lead", Gauge, "{step}", []string{JobName}, "Steps that are planned and that not all ranks are done with."},
	PlanAhead:             {"millrace.plan.ahead", Gauge, "{step}", []string{JobName}, "The most that the lead may be: resources.prefetch, or --prefetch."},
	PlanFill:              {"millrace.plan.fill", Gauge, "1", []string{JobName}, "Tokens in the rows of the last plan, of the room in them."},
	PlanCarried:           {"millrace.plan.carried", Gauge, "{sample}", []string{JobName}, "Samples that were drawn and found no room in the last step."},
	PlanHeld:              {"millrace.plan.held", Gauge, "{sample}", []string{JobName}, "Outliers that wait for others of their length."},
	PlannerEpoch:          {"millrace.planner.epoch", Gauge, "", []string{JobName}, "Epoch of the planner: it rises when another one takes over. 0 without a log."},
	PlannerGeneration:     {"millrace.planner.generation", Gauge, "", []string{JobName}, "Generation of the job: it rises when the job moves to another step."},
	PlannerStale:          {"millrace.planner.stale_refused", Counter, "{message}", []string{JobName}, "Messages of planners, or to them, that were refused as another planner took their place."},
	PlannerAppendsRefused: {"millrace.planner.appends_refused", Counter, "{write}", []string{JobName}, "Writes to the log's mirror that were refused as another planner had taken over."},
	Members:               {"millrace.members", Gauge, "{member}", []string{JobName, "role", "state"}, "Loaders and constructors that are connected: ok, suspect, shadow or spare."},
	MembersWanted:         {"millrace.members_wanted", Gauge, "{member}", []string{JobName, "role"}, "Loaders (shadows among them) and constructors that the job is to have, while the job starts or runs."},
	MemberSessions:        {"millrace.member.sessions", Counter, "{session}", []string{JobName, "role"}, "Sessions that loaders and constructors began with this planner: what is above their number are reconnects."},
	RankJoins:             {"millrace.rank.joins", Counter, "{join}", []string{JobName}, "Joins of ranks that this planner granted: what is above their number are reconnects and resumes."},
	RanksByWay:            {"millrace.rank.ways", Gauge, "{rank}", []string{JobName, "way"}, "Ranks by how batches reach them: shared (memory that they map), socket (of their machine, as there is no such memory), stream, or calls; gone: their line has ended, and they have not come back."},
	Promotions:            {"millrace.shadow.promotions", Counter, "{promotion}", []string{JobName}, "Places of lost loaders that shadows took."},
	BlocksAskedAgain:      {"millrace.blocks.asked_again", Counter, "{block}", []string{JobName}, "Blocks that loaders were asked to read again, as those that had them were lost."},
	SourceLag:             {"millrace.source.lag", Gauge, "", []string{JobName, "source"}, "How far a source is behind the schedule, in the mix's unit: tokens or samples."},
	SourceTokens:          {"millrace.source.tokens", Gauge, "{token}", []string{JobName, "source"}, "Tokens drawn from a source so far; lower after the job was moved back."},
	SourceSamples:         {"millrace.source.samples", Gauge, "{sample}", []string{JobName, "source"}, "Samples drawn from a source so far; lower after the job was moved back. Tokens and logs do not count samples: there is none after the job went on from one of them."},
	SourceShare:           {"millrace.source.share", Gauge, "1", []string{JobName, "source"}, "Share of a source in all that was drawn so far, in the mix's unit; of a mix of samples there is none where these are not known."},
	SourceShareScheduled:  {"millrace.source.share_scheduled", Gauge, "1", []string{JobName, "source"}, "Share of a source that the schedule wants at the next step."},
	SourceEpoch:           {"millrace.source.epoch", Gauge, "", []string{JobName, "source"}, "Times that the source was read to its end."},
	SourceRecords:         {"millrace.source.records_left_out", Counter, "{record}", []string{JobName, "source", "why"}, "Records of a source that are in no batch: filtered, dropped, empty, or skipped as bad."},

	LoaderMemory:      {"millrace.loader.memory", Gauge, "By", []string{"loader"}, "Samples that a loader holds in memory."},
	LoaderMemoryLimit: {"millrace.loader.memory_limit", Gauge, "By", []string{"loader"}, "The most that it may hold there."},
	LoaderDisk:        {"millrace.loader.disk", Gauge, "By", []string{"loader"}, "Samples that a loader holds on its local disk."},
	LoaderDiskLimit:   {"millrace.loader.disk_limit", Gauge, "By", []string{"loader"}, "The most that it may hold there."},
	LoaderDiskProblem: {"millrace.loader.disk_problem", Gauge, "", []string{"loader"}, "1 while a loader keeps nothing more on its local disk, as that is full or fails."},
	LoaderRead:        {"millrace.loader.read", Counter, "By", []string{"loader"}, "Bytes that a loader read from files and stores."},
	LoaderBlocks:      {"millrace.loader.blocks_read", Counter, "{block}", []string{"loader"}, "Blocks that a loader read."},
	LoaderRereads:     {"millrace.loader.blocks_reread", Counter, "{block}", []string{"loader"}, "Of them, those read again because neither memory nor disk had room."},
	LoaderStale:       {"millrace.loader.stale_refused", Counter, "{message}", []string{"loader"}, "Messages of planners of lower epochs that a loader refused."},
	StageTasks:        {"millrace.stage.tasks", Gauge, "{task}", []string{"loader", "source", "stage", "state"}, "Tasks of a stage of a source with functions: running, queued, or waiting_for_room."},
	StageQueued:       {"millrace.stage.queued", Gauge, "By", []string{"loader", "source", "stage"}, "Bytes that wait before a stage."},
	FunctionWorkers:   {"millrace.function.workers", Gauge, "{process}", []string{"loader", "functions", "state"}, "Worker processes of an environment of functions: busy or idle. `millrace status` says which interpreter and folder a label stands for."},
	FunctionWaiting:   {"millrace.function.waiting", Gauge, "{batch}", []string{"loader", "functions"}, "Batches that wait for a worker process."},
	FunctionRestarts:  {"millrace.function.restarts", Counter, "{restart}", []string{"loader", "functions"}, "Worker processes that ended and were started again."},

	ConstructorMemory:      {"millrace.constructor.memory", Gauge, "By", []string{"constructor"}, "Steps that a constructor holds."},
	ConstructorMemoryLimit: {"millrace.constructor.memory_limit", Gauge, "By", []string{"constructor"}, "The most that it may hold."},
	ConstructorDelivered:   {"millrace.constructor.delivered", Counter, "By", []string{"constructor"}, "Bytes that a constructor handed to ranks."},
	ConstructorBatches:     {"millrace.constructor.batches", Counter, "{batch}", []string{"constructor"}, "Parts of steps that a constructor handed to ranks."},
	ConstructorFetchTime:   {"millrace.constructor.fetch_time", Counter, "s", []string{"constructor"}, "Time that a constructor waited for samples of loaders."},
	ConstructorSteps:       {"millrace.constructor.steps", Gauge, "{step}", []string{"constructor", "state"}, "Steps of a constructor: planned, building, or ready."},
	ConstructorHedges:      {"millrace.constructor.fetches", Counter, "{fetch}", []string{"constructor", "state"}, "Fetches of which another loader was asked: hedged (the first was late), won (another one answered), moved (the planner dealt the block elsewhere)."},
	ConstructorAbsent:      {"millrace.constructor.absent_ranks", Gauge, "{rank}", []string{"constructor"}, "Ranks of a constructor that have not asked for a batch since they joined."},
	ConstructorStale:       {"millrace.constructor.stale_refused", Counter, "{message}", []string{"constructor"}, "Messages of planners of lower epochs that a constructor refused."},
	RankStep:               {"millrace.rank.step", Gauge, "{step}", []string{"constructor", "rank"}, "The step that a rank is at: it is done with those before."},

	GPUBusy:            {"millrace.gpu.busy", Gauge, "1", []string{"constructor", "gpu"}, "Share of the last second or less in which a kernel ran on a GPU of a sidecar's machine."},
	GPUMultiprocessors: {"millrace.gpu.multiprocessors", Gauge, "1", []string{"constructor", "gpu"}, "Share of the last second in which its multiprocessors worked, where the driver counts that (GPM, Hopper and later)."},
	GPUTensor:          {"millrace.gpu.tensor", Gauge, "1", []string{"constructor", "gpu"}, "Share of the last second in which its tensor cores worked, where the driver counts that."},
	GPUReceived:        {"millrace.gpu.received", Gauge, "By/s", []string{"constructor", "gpu"}, "Bytes a second that it received over PCIe."},

	HoldupTime:              {"millrace.holdup.time", Counter, "s", []string{JobName, "cause", "name"}, "Time by what held the next step up: trainers (the service has done all that it may), source, constructor, log, planner or member, and which source."},
	TrainersWaitShare:       {"millrace.trainers.wait_share", Gauge, "1", []string{JobName}, "Share of the last 10 s in which trainers stood still for data, by their own clocks, the mean over ranks."},
	StallBy:                 {"millrace.stall", Gauge, "", []string{JobName, "cause"}, "1 for the cause of the line `stall:` of the status, 0 for the others: trainers (they wait for nothing), rank (they wait for one of them), source, loader, constructor, log, planner, member or delivery."},
	RankWait:                {"millrace.rank.wait", Counter, "s", []string{"constructor", "rank"}, "Time that a rank's trainer stood still for data, by its own clock; begins again where another constructor serves the rank."},
	ConstructorAssembleTime: {"millrace.constructor.assemble_time", Counter, "s", []string{"constructor"}, "Time that a constructor spent on laying out steps and decoding their images."},
	CertificateEnds:         {"millrace.tls.certificate_ends", Gauge, "s", nil, "Unix time at which the TLS certificate of the process ends, or that of its authority, whichever is first; not there without TLS."},
	CertificateEndsSoon:     {"millrace.tls.certificate_ends_soon", Gauge, "", nil, "1 from seven days before that on, or a sixth of the certificate's life, whichever is shorter."},
	ProcessCPU:              {"process.cpu.time", Counter, "s", nil, "CPU time of the process, user and system."},
	ProcessMemory:           {"process.memory.usage", Gauge, "By", nil, "Memory of the process that is resident."},
	GoMemory:                {"go.memory.used", Gauge, "By", nil, "Memory that Go's runtime holds."},
	GoMemoryLimit:           {"go.memory.limit", Gauge, "By", nil, "The limit at which Go collects garbage harder."},
	GoGoroutines:            {"go.goroutine.count", Gauge, "{goroutine}", nil, "Goroutines."},
}

// Prometheus is the metric's name on a Prometheus page.
func (m Metric) Prometheus() string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	switch m.Unit {
	case "s":
		name += "_seconds"
	case "By":
		name += "_bytes"
	case "By/s":
		name += "_bytes_per_second"
	case "1":
		name += "_ratio"
	}
	if m.Kind == Counter {
		name += "_total"
	}
	return name
}

// Environment is what metrics call an environment of functions: its name holds paths, which no page shows. It is the same
// in all processes of a job.
func Environment(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("python-%x", sum[:4])
}
