package jobspec

import (
	"math"
	"reflect"
	"slices"

	"github.com/millrace-data/millrace/internal/formats"
)

// kind is how a field's value is written.
type kind uint8

const (
	textKind    kind = iota // a string
	countKind               // a whole number: 4096, 100k, 1e6, 64Ki
	bytesKind               // a whole number of bytes: 64MiB, 64mb
	flagKind                // true or false
	weightsKind             // source names with numbers
	objectKind              // a group of fields
)

// field declares one key of the spec. Decoding, defaults, range checks,
// printing, the identity, the JSON Schema and the reference page all read this.
type field struct {
	key      string   // in YAML
	name     string   // Go field; "" if another field takes the value (see derive.go)
	kind     kind     //
	doc      string   // what it says, in a sentence or two
	def      any      // default, of the Go field's type; nil: the zero value
	auto     string   // in words: the default that follows from other fields
	enum     []string // the words that are valid
	min, max int64    // of a count
	wide     bool     // of a count: all 64 bits, in place of min and max
	required bool
	empty    bool    // "" is valid; of a count or a flag: 0 or false is what leaving it out means
	list     bool    // a list of kind
	one      bool    // with list: one bare value is a list of one
	object   *object // of objectKind
	free     string  // why Identity leaves it out; "" if it does not

	step reflect.Type // of an operator: the type that implements Transform
}

// object declares a group of fields, one Go struct.
type object struct {
	title  string
	fields []field
	short  string // the field that a bare value stands for
	choice bool   // exactly one field is set
}

func (o *object) field(key string) *field {
	for i := range o.fields {
		if o.fields[i].key == key {
			return &o.fields[i]
		}
	}
	return nil
}

func (o *object) keys() []string {
	keys := make([]string, len(o.fields))
	for i := range o.fields {
		keys[i] = o.fields[i].key
	}
	return keys
}

// Upper bounds keep products of two fields inside an int64; none is near
// anything that is trained today.
const (
	maxAxis  = 1 << 20 // ranks along one axis, rows
	maxWorld = 1 << 24 // ranks of a mesh, as in planner/mesh
	maxRow   = 1 << 24 // tokens in a row: balance.MaxCapacity
	maxBytes = 1 << 50 //
	maxSplit = 1 << 16 // ranks that share a row

	maxImagePixels = 1 << 26

	maxLevels = 16
	maxHeld   = 128 // outliers of all levels that end their wait together: twice as many travel in every token
)

// Reasons for which a field is left out of Identity.
const (
	freeName     = "a label"
	freeMesh     = "the global batch is cut for the mesh, it does not depend on it"
	freeBudget   = "a budget, it changes no byte"
	freePolicy   = "it says when the job stops, not what is delivered before"
	freeMicro    = "rows of the global batch do not depend on how they are grouped"
	freePlace    = "it says where rows go; what it says of their contents (a `use`, or the cost of a balance at level intra or interleaved) is covered"
	freeFeedback = "the weights that it sets are inputs of their own"
	freeDelivery = "the way of delivery, not the global batch"
	freeMachine  = "it names a program of the machine; what the function does is the manifest's to cover"
	freeAnswers  = "it names where answers are kept, not what they are"
	freeBatch    = "a function is given each record by itself, or has to treat it so"
	freeCheck    = "it compares what comes out, and changes no byte"
	freeDecode   = "the pixels are the same wherever they are made"
)

var specObject = object{title: "The spec", fields: []field{
	{key: "name", name: "Name", kind: textKind, required: true, free: freeName,
		doc: "Names the job in logs, tokens and errors."},
	{key: "seed", name: "Seed", kind: countKind, wide: true,
		doc: "The only randomness there is: the same seed gives the same batches."},
	{key: "sources", name: "Sources", kind: objectKind, list: true, required: true, object: &sourceObject,
		doc: "The datasets, at least one."},
	{key: "mix", name: "Mix", kind: objectKind, object: &mixObject,
		doc: "How much of each source; may be left out with one source."},
	{key: "batch", name: "Batch", kind: objectKind, required: true, object: &batchObject,
		doc: "The shape of one global step."},
	{key: "strategy", name: "Strategy", kind: objectKind, list: true, one: true, object: &primitiveObject, free: freePlace, auto: "rows go to ranks in the order of packing",
		doc: "How samples are balanced over rows, rows over microbatches and ranks, and images over encoders: a list of primitives, or the name of a strategy that was registered in Go."},
	{key: "topology", name: "Topology", kind: objectKind, object: &topologyObject, free: freeMesh,
		doc: "The mesh of trainer ranks."},
	{key: "output", name: "Output", kind: objectKind, object: &outputObject,
		doc: "How batches look to the trainer."},
	{key: "resources", name: "Resources", kind: objectKind, object: &resourcesObject, free: freeBudget,
		doc: "Bounds on memory and read-ahead. Nothing here changes a byte."},
}}

var sourceObject = object{title: "A source", fields: []field{
	{key: "name", name: "Name", kind: textKind, required: true,
		doc: "Names the source in the mix. Printable characters, no space at either end, at most 200 bytes; unique."},
	{key: "files", name: "Files", kind: textKind, list: true, one: true, required: true,
		doc: "Files, directories or globs (`*`, `?`, `[..]`, `{..}`, `**`); relative ones are relative to the spec's folder."},
	{key: "format", name: "Format", kind: textKind, empty: true, auto: "by file extension",
		enum: formats.InputNames(),
		doc:  "The format of the files."},
	{key: "chunk_bytes", name: "ChunkBytes", kind: bytesKind, def: int64(1 << 20), min: 1, max: maxBytes,
		doc: "Target size of the unit of reading in formats without units of their own."},
	{key: "transforms", name: "Transforms", kind: objectKind, list: true, object: &transformObject,
		auto: "`tokens: tokens` for megatron files, else the text of column `text` (`txt` in a webdataset and of `files`), `tokenize: bytes` and `append_eod`",
		doc:  "The steps that make samples of records, in order."},
	{key: "keep", name: "Keep", kind: textKind, list: true, one: true,
		doc: "Columns carried as bytes beside the tokens, such as `jpg`. One that a record lacks is null."},
	{key: "long", name: "Long", kind: objectKind, object: &longObject,
		doc: "The rule for samples that are too long for a row."},
	{key: "shuffle", name: "Shuffle", kind: objectKind, object: &shuffleObject,
		doc: "The order of the source."},
	{key: "bad_records", name: "BadRecords", kind: objectKind, object: &badRecordsObject, free: freePolicy,
		doc: "What happens at a record that cannot be read."},
	{key: "max_record", name: "MaxRecord", kind: bytesKind, min: 1, max: 1 << 30, empty: true, auto: "64MiB, and a longer record stops the job whatever `bad_records` says",
		doc: "The most bytes of one record as it is read (a JSON line with the blank lines before it, a JSON element, a tar member, a text file, a Megatron document), and of its text. A longer one is a bad record. What becomes of a record takes about ten times its bytes of memory, beside `loader_buffer`."},
	{key: "max_elements", name: "MaxElements", kind: countKind, min: 1, max: 1 << 30, empty: true, auto: "1Mi, and a record with more stops the job whatever `bad_records` says",
		doc: "The most elements of the lists in one column of a record, those of lists in lists included; token ids do not count. A record with more is a bad record. Each takes some 200 bytes of memory, beside `loader_buffer`."},
	{key: "limit", name: "Limit", kind: countKind, max: math.MaxInt64,
		doc: "At most this many samples in one epoch; 0 takes all."},
}}

var transformObject = object{title: "A transform", choice: true, fields: operatorFields()}

var longObject = object{title: "long", short: "rule", fields: []field{
	{key: "rule", name: "Rule", kind: textKind, def: "split", enum: []string{"split", "truncate", "drop"},
		doc: "Split into several samples, keep the first `max` tokens, or leave the sample out."},
	{key: "max", name: "Max", kind: countKind, min: 1, max: maxRow, auto: "`batch.sequence_length`, times `batch.context_split` if that is given",
		doc: "Tokens up to which a sample is left as it is; at most the default."},
}}

var shuffleObject = object{title: "shuffle", short: "enabled", fields: []field{
	{key: "enabled", name: "Enabled", kind: flagKind, def: true,
		doc: "False: files by path, records in file order."},
	{key: "block", name: "Block", kind: countKind, def: 4, min: 1, max: maxAxis,
		doc: "Chunks shuffled together. More mixes better and holds more in memory."},
}}

var badRecordsObject = object{title: "bad_records", short: "policy", fields: []field{
	{key: "policy", name: "Policy", kind: textKind, def: "stop", enum: []string{"stop", "skip"},
		doc: "Stop the job, or skip the record and name it in the skip ledger."},
	{key: "limit", name: "Limit", kind: countKind, def: 100, max: math.MaxInt32,
		doc: "With `skip`: the job stops when more than this many were skipped in one epoch."},
	{key: "window", name: "Window", kind: countKind, def: 10_000, min: 1, max: math.MaxInt32,
		doc: "The records in a row that `window_limit` is about, to the block."},
	{key: "window_limit", name: "WindowLimit", kind: countKind, min: 1, max: math.MaxInt32, empty: true, auto: "1000, and none if `limit` is more",
		doc: "With `skip`: the job stops when more than this many of `window` records in a row were skipped, whatever `limit` says."},
}}

var mixObject = object{title: "mix", fields: []field{
	{key: "unit", name: "Unit", kind: textKind, def: "tokens", enum: []string{"tokens", "samples"},
		doc: "What the weights count."},
	{key: "weights", kind: weightsKind,
		doc: "Shorthand for one stage with these weights."},
	{key: "stages", name: "Stages", kind: objectKind, list: true, object: &stageObject, auto: "all weight on the source, if there is one only",
		doc: "The weights over time, by rising start step."},
	{key: "grain", name: "Grain", kind: textKind, def: "step", enum: []string{"epoch", "step", "substep"},
		doc: "How often the weights of stages move: with each step; 16 times within a step; or, with `from` and `over` counted in epochs, whenever all sources with a weight were read through once more."},
	{key: "draw", name: "Draw", kind: textKind, def: "deficit", enum: []string{"deficit", "random"},
		doc: "How the next sample's source is chosen: the one that is furthest behind its share, so that shares are met to a sample; or by chance, with the shares as probabilities."},
	{key: "feedback", name: "Feedback", kind: objectKind, object: &feedbackObject, free: freeFeedback,
		doc: "Moves the weights by what trainers report of their loss."},
	{key: "epochs", name: "Epochs", kind: countKind, max: math.MaxInt32,
		doc: "Times that any source may be read through; 0 sets no limit."},
	{key: "exhausted", name: "Exhausted", kind: textKind, def: "stop", enum: []string{"stop", "renormalize"},
		doc: "When a source has reached `epochs`: end the data, or go on with the other sources. Without `epochs` a source starts again by itself."},
}}

var feedbackObject = object{title: "feedback", short: "policy", fields: []field{
	{key: "policy", name: "Policy", kind: textKind, def: "none",
		doc: "`none`, the name of a policy that a program registered, or `exponential`: a source's weight is multiplied by exp(rate * (its loss - the mean loss)), so that what is learned worst is seen more."},
	{key: "every", name: "Every", kind: countKind, def: 10, min: 1, max: math.MaxInt32,
		doc: "Steps between two changes of the weights."},
	{key: "rate", name: "Rate", kind: countKind, def: 100, min: 1, max: 100_000,
		doc: "How fast, in thousandths: 100 is exp(0.1 * difference)."},
	{key: "floor", name: "Floor", kind: countKind, def: 10, max: 1000,
		doc: "The least part of the mix that a source keeps, in thousandths of its part in the job spec."},
}}

var stageObject = object{title: "A stage", fields: []field{
	{key: "from", name: "From", kind: countKind, max: math.MaxInt64 / 64,
		doc: "The first step of the stage; steps count from 0, the first stage starts at 0."},
	{key: "ramp", name: "Ramp", kind: textKind, def: "none", enum: []string{"none", "linear", "cosine"},
		doc: "How the weights get here from the stage before."},
	{key: "over", name: "Over", kind: countKind, max: math.MaxInt64 / 64,
		doc: "Steps the ramp takes, from `from` on."},
	{key: "weights", name: "Weights", kind: weightsKind, required: true,
		doc: "Weights by source name. They are divided by their sum; a source that is not named has weight 0."},
}}

var batchObject = object{title: "batch", fields: []field{
	{key: "sequence_length", name: "SequenceLength", kind: countKind, required: true, min: 1, max: maxRow,
		doc: "Tokens in a row."},
	{key: "sequences", name: "Sequences", kind: countKind, min: 1, max: maxAxis, auto: "`tokens` / `sequence_length`",
		doc: "Rows in one step over all DP ranks; with `context_split`, their widths added up."},
	{key: "tokens", kind: countKind, min: 1, max: maxRow * maxAxis,
		doc: "Tokens in one step, in place of `sequences`; a multiple of `sequence_length`."},
	{key: "microbatch_size", name: "MicrobatchSize", kind: countKind, def: 1, min: 1, max: maxAxis, free: freeMicro,
		doc: "Rows in one microbatch of one DP rank."},
	{key: "packing", name: "Packing", kind: flagKind, def: true,
		doc: "Several samples in a row."},
	{key: "context_split", name: "ContextSplit", kind: countKind, min: 2, max: maxSplit, empty: true, auto: "none",
		doc: "Ranks that one row may be cut over, a power of two: with it the `dp` * `cp` ranks are one pool, each of which takes `sequence_length` tokens in every microbatch, and `sequences` counts these. A sample that is longer gets a row of the 2, 4, ... up to this many ranks that hold it, other samples fill the rest of the row. See docs/strategies.md."},
	{key: "fill", name: "Fill", kind: countKind, min: 500, max: 1000, empty: true, auto: "rows are as full as they get, and evened with less effort",
		doc: "Thousandths of a step's tokens that samples fill, so that rows have room to cost alike: `fill: 975` gives up 2.5 % of the tokens of a step. 1000: rows are as full as they get. It needs a balance at level `intra` or `interleaved`, or a strategy of your own. `millrace plan` says what each fill costs and gains. See docs/strategies.md."},
	{key: "outliers", name: "Outliers", kind: objectKind, object: &outliersObject, auto: "none: every sample is in the step that draws it, if it fits",
		doc: "Long samples that wait until several of their length are there, so that a step has none of them or enough for all ranks. Not with `context_split`."},
}}

var outliersObject = object{title: "outliers", short: "above", fields: []field{
	{key: "above", name: "Above", kind: countKind, list: true, one: true, required: true, min: 1, max: maxRow,
		doc: "Tokens from which a sample waits. With several lengths, rising, samples from each of them to below the next wait together."},
	{key: "together", name: "Together", kind: countKind, min: 1, max: maxHeld, auto: "`sequences`, or 128 divided by the number of lengths if that is less",
		doc: "This many of one level, or a multiple of it, end their wait together: best one for each DP rank, or each row, that come within `wait` steps. Twice as many wait at most: a sample beyond that is in the step that draws it."},
	{key: "wait", name: "Wait", kind: countKind, def: 16, min: 1, max: 1000,
		doc: "Steps that a sample waits at most."},
}}

var primitiveObject = object{title: "A primitive", choice: true, short: "use", fields: []field{
	{key: "use", name: "Use", kind: textKind,
		doc: "The name of a Go strategy that the program passes to `millrace.Main`. It is the only entry, but for `distribute: cp` behind it if its rows go there."},
	{key: "graph", name: "Graph", kind: objectKind, object: &graphObject,
		doc: "What the entries after it act on: the rows of the step (`text`, as at the beginning), its images, or those of some sources."},
	{key: "mix", name: "Mix", kind: objectKind, object: &mixStepObject,
		doc: "Draws the samples by `mix`. May be left out."},
	{key: "distribute", name: "Distribute", kind: objectKind, object: &distributeObject,
		doc: "Over which ranks rows or images are distributed."},
	{key: "cost", name: "Cost", kind: objectKind, object: &costObject,
		doc: "What a sample, or an image, costs."},
	{key: "balance", name: "Balance", kind: objectKind, object: &balanceObject,
		doc: "How costs are evened."},
	{key: "broadcast_at", name: "BroadcastAt", kind: textKind, list: true, one: true, enum: []string{"tp"},
		doc: "As `output.broadcast_at`, which may be left out then."},
}}

var graphObject = object{title: "graph", short: "of", fields: []field{
	{key: "of", name: "Of", kind: textKind, required: true, enum: []string{textGraph, "image"},
		doc: "The samples in their rows, or the images."},
	{key: "sources", name: "Sources", kind: textKind, list: true, one: true, auto: "all that no other graph of the kind names",
		doc: "Sources whose samples or images these are. Images of such a graph are balanced by themselves, at the axis of all images, as an encoder of their own works on them. Samples in rows may only have a `cost` of their own, since a row has samples of all sources."},
}}

var mixStepObject = object{title: "mix"}

var distributeObject = object{title: "distribute", short: "axis", fields: []field{
	{key: "axis", name: "Axis", kind: textKind, def: "dp", enum: []string{"dp", "cp", "pp", "tp", "world"},
		doc: "Each rank along it, and along those before it in this order, is a consumer of its own. Rows have `dp`, where the `cp` ranks of a `dp` index share each row, or `cp`, where every rank of `dp` * `cp` has rows of its own: with `batch.context_split`, or without it, with `megatron-thd` and no images. At `world` each rank of all encodes its own images."},
	{key: "group_size", name: "GroupSize", kind: countKind, def: 1, min: 1, max: maxAxis,
		doc: "Consumers of a group: with more than 1, costs are evened over groups first and inside them then, which is less to exchange in large clusters. Divides the number of consumers, but for `last_group: smaller`."},
	{key: "last_group", name: "LastGroup", kind: textKind, def: "equal", enum: []string{"equal", "smaller"},
		doc: "`smaller`: where `group_size` does not divide the consumers, the last group has those that are left. `equal`: that is an error."},
}}

var costObject = object{title: "cost", short: "model", fields: []field{
	{key: "model", name: "Model", kind: textKind, empty: true,
		doc: "`linear`, `quadratic`, `memory`, `transformer`, `encoder`, or a model of known size such as `llama-12b`; see package planner/cost. An expression may stand here too."},
	{key: "expression", name: "Expression", kind: textKind, empty: true,
		doc: "In place of `model`: an expression over `tokens`, `patches` and `images`."},
	{key: "a", name: "A", kind: countKind, min: 1, max: math.MaxInt64, empty: true, auto: "of the model",
		doc: "`linear`, `quadratic`: the cost of each token."},
	{key: "b", name: "B", kind: countKind, min: 1, max: math.MaxInt64, empty: true, auto: "of the model",
		doc: "`quadratic`: the cost of each pair of tokens."},
	{key: "of", name: "Of", kind: textKind, empty: true, enum: []string{"tokens", "patches", "images"}, auto: "of the model",
		doc: "`linear`, `quadratic`: what is counted."},
	{key: "layers", name: "Layers", kind: countKind, min: 1, max: math.MaxInt64, empty: true, auto: "none",
		doc: "`transformer`, `encoder`: its layers."},
	{key: "hidden", name: "Hidden", kind: countKind, min: 1, max: math.MaxInt64, empty: true, auto: "none",
		doc: "`transformer`, `encoder`: its width."},
	{key: "active", name: "Active", kind: countKind, min: 1, max: math.MaxInt64, empty: true, auto: "of the model",
		doc: "`transformer`: parameters of a layer that a token uses, divided by the square of the width."},
	{key: "bytes_per_token", name: "BytesPerToken", kind: countKind, min: 1, max: math.MaxInt64, empty: true, auto: "none",
		doc: "`memory`: bytes of each token."},
	{key: "fixed_bytes", name: "FixedBytes", kind: countKind, min: 1, max: math.MaxInt64, empty: true, auto: "of the model",
		doc: "`memory`: bytes of each sample beside its tokens."},
}}

var balanceObject = object{title: "balance", short: "method", fields: []field{
	{key: "method", name: "Method", kind: textKind, def: "auto", enum: []string{"auto", "lpt", "kk"},
		doc: "Greedy by falling cost (`lpt`), the largest differencing method (`kk`), or what suits the size best."},
	{key: "level", name: "Level", kind: textKind, def: "inter", enum: []string{"inter", "intra", "interleaved"},
		doc: "Rows over microbatches and ranks, samples over rows, or both. Samples are moved between rows without regard to the mesh, and no row gets more tokens than it has room for."},
	{key: "row_method", name: "RowMethod", kind: textKind, def: autoMethod,
		doc: "At the levels `intra` and `interleaved`: how samples are moved between rows, `auto` or a method that the program passes to `millrace.Main`. What rows hold depends on it."},
	{key: "keep_order", name: "KeepOrder", kind: flagKind, def: false,
		doc: "Balance nothing, but show the costs in the status."},
}}

var axes = []string{"tp", "cp", "dp", "pp"}

var topologyObject = object{title: "topology", fields: []field{
	{key: "dp", name: "DP", kind: countKind, def: 1, min: 1, max: maxAxis, doc: "Data-parallel size."},
	{key: "cp", name: "CP", kind: countKind, def: 1, min: 1, max: maxAxis, doc: "Context-parallel size."},
	{key: "pp", name: "PP", kind: countKind, def: 1, min: 1, max: maxAxis, doc: "Pipeline-parallel size."},
	{key: "tp", name: "TP", kind: countKind, def: 1, min: 1, max: maxAxis, doc: "Tensor-parallel size."},
	{key: "vpp", name: "VPP", kind: countKind, def: 1, min: 1, max: maxAxis,
		doc: "Virtual pipeline stages on a rank."},
	{key: "ep", name: "EP", kind: countKind, def: 1, min: 1, max: maxAxis,
		doc: "Expert-parallel size, over the ranks of dp and cp. No batch depends on it."},
	{key: "order", name: "Order", kind: textKind, list: true, def: axes, enum: append(slices.Clone(axes), "vpp", "ep"),
		doc: "The axes, those with neighbouring ranks first. The default is Megatron's. `vpp` and `ep` may be named, and move no rank."},
}}

var outputObject = object{title: "output", fields: []field{
	{key: "format", name: "Format", kind: textKind, def: formats.BatchMegatron, enum: formats.BatchNames(),
		doc: "Names and types of the tensors: as Megatron-LM (rows, or packed sequences), Hugging Face Transformers, torchtitan or MaxText have them."},
	{key: "cp_slicing", name: "CPSlicing", kind: textKind, def: "zigzag", enum: []string{"zigzag", "contiguous", "none"}, free: freeDelivery,
		doc: "How rows are cut for CP ranks: two chunks from both ends, one range, or not at all."},
	{key: "broadcast_at", name: "BroadcastAt", kind: textKind, empty: true, enum: []string{"tp"}, auto: "none: every rank fetches", free: freeDelivery,
		doc: "`tp`: only the first rank of each TP group fetches, and broadcasts."},
	{key: "pad_id", name: "PadID", kind: countKind, max: math.MaxInt32,
		doc: "The token id in the padding of rows."},
	{key: "document_multiple", name: "DocumentMultiple", kind: countKind, min: 1, max: maxRow, empty: true,
		auto: "with `megatron-thd` the least common multiple of 2 * `cp` (`cp` above 1) and `cp` * `tp` (`tp` above 1), with `batch.context_split` in place of `cp`, and 1 in its place if rows are distributed at `cp` without that",
		doc:  "`megatron-thd`: tokens of a document are padded to a multiple of it, and count so when rows are filled. Write it to go on with a token on another mesh."},
}}

var resourcesObject = object{title: "resources", fields: []field{
	{key: "loader_buffer", name: "LoaderBuffer", kind: bytesKind, def: int64(512 << 20), min: 1, max: maxBytes,
		doc: "Samples a loader may hold in memory, those of blocks that are being read and of answers to constructors included, with the pixels of `decode: loader`, and what pictures, sounds and videos are decoded in. A loader takes up to 96 MiB beside it, its program included, and ten times its longest record. It is made smaller where the process has less memory than that, by its control group or `--memory`. The limit of Go's collector follows from it; GOMEMLIMIT in the environment overrules that."},
	{key: "loader_disk", name: "LoaderDisk", kind: bytesKind, def: int64(4 << 30), max: maxBytes,
		doc: "Samples a loader may keep on its local disk, when they do not fit `loader_buffer`; 0: they are read again instead. The folder is the machine's business: `--scratch-dir` or MILLRACE_SCRATCH_DIR."},
	{key: "constructor_buffer", name: "ConstructorBuffer", kind: bytesKind, def: int64(256 << 20), min: 1, max: maxBytes,
		doc: "Assembled batches a constructor may hold, a quarter of it for what their images are decoded in."},
	{key: "prefetch", name: "Prefetch", kind: countKind, def: 4, min: 1, max: maxAxis,
		doc: "Steps planned ahead of the slowest trainer."},
	{key: "window", name: "Window", kind: countKind, def: 256, min: 1, max: maxAxis,
		doc: "Samples of each source known ahead to the planner, at the least: a source that gives much to a step is read further ahead."},
	{key: "spill", name: "Spill", kind: bytesKind, max: maxBytes, empty: true, auto: "none",
		doc: "Batches between the stages of sources with functions that a loader may put on its local disk, in the folder of `loader_disk`, when nothing works any more since all memory is taken; without it they are made again. See [engine.md](engine.md#what-the-executor-does)."},
	{key: "python_workers", name: "PythonWorkers", kind: countKind, max: 4096, empty: true, auto: "one for each core",
		doc: "Worker processes of each environment of Python functions, in each process that reads. `--python-workers` and MILLRACE_PYTHON_WORKERS say otherwise for one process."},
	{key: "worker_pools", name: "WorkerPools", kind: textKind, list: true, auto: "none",
		doc: "Addresses of worker pools (`millrace workers`) that run Python functions of this job too, on other machines: `[gpu1:7080, gpu2:7080]`. They may come and go. `--worker-pools` and MILLRACE_WORKER_POOLS say otherwise for one process."},
}}
