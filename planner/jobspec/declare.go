package jobspec

import "math"

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
	empty    bool    // "" is valid
	list     bool    // a list of kind
	one      bool    // with list: one bare value is a list of one
	object   *object // of objectKind
	free     string  // why Identity leaves it out; "" if it does not
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
	maxRow   = 1 << 30 // tokens in a row
	maxBytes = 1 << 50 //
)

// Reasons for which a field is left out of Identity.
const (
	freeName     = "a label"
	freeMesh     = "the global batch is cut for the mesh, it does not depend on it"
	freeBudget   = "a budget, it changes no byte"
	freePolicy   = "it says when the job stops, not what is delivered before"
	freeMicro    = "rows of the global batch do not depend on how they are grouped"
	freeDelivery = "the way of delivery, not the global batch"
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
		enum: []string{"parquet", "jsonl", "json", "webdataset", "megatron", "arrow", "text"},
		doc:  "The format of the files."},
	{key: "chunk_bytes", name: "ChunkBytes", kind: bytesKind, def: int64(1 << 20), min: 1, max: maxBytes,
		doc: "Target size of the unit of reading in formats without units of their own."},
	{key: "transforms", name: "Transforms", kind: objectKind, list: true, object: &transformObject,
		auto: "`tokens: tokens` for megatron files, else the text of column `text` (`txt` in a webdataset), `tokenize: bytes` and `append_eod`",
		doc:  "The steps that make samples of records, in order."},
	{key: "keep", name: "Keep", kind: textKind, list: true, one: true,
		doc: "Columns carried as bytes beside the tokens, such as `jpg`."},
	{key: "long", name: "Long", kind: objectKind, object: &longObject,
		doc: "The rule for samples that are too long for a row."},
	{key: "shuffle", name: "Shuffle", kind: objectKind, object: &shuffleObject,
		doc: "The order of the source."},
	{key: "bad_records", name: "BadRecords", kind: objectKind, object: &badRecordsObject, free: freePolicy,
		doc: "What happens at a record that cannot be read."},
	{key: "limit", name: "Limit", kind: countKind, max: math.MaxInt64,
		doc: "At most so many samples in one epoch; 0 takes all."},
}}

var transformObject = object{title: "A transform", choice: true, fields: []field{
	{key: "text", name: "Text", kind: textKind,
		doc: "The document, as a template over fields: `\"{title}\\n\\n{body}\"`. `{{` and `}}` are literal braces, `meta.title` reaches into a field, `messages[].content` through a list."},
	{key: "tokens", name: "Tokens", kind: textKind,
		doc: "The column that already holds token ids; in place of `text` and `tokenize`."},
	{key: "filter", name: "Filter", kind: textKind,
		doc: "An expression over fields, `text` and `tokens`; records for which it is false are left out: `len(text) > 20 and lang == 'en'`."},
	{key: "tokenize", name: "Tokenize", kind: objectKind, object: &tokenizeObject,
		doc: "Turns the text into token ids. An empty value takes all defaults."},
	{key: "append_eod", name: "AppendEOD", kind: objectKind, object: &appendEODObject,
		doc: "Appends one end-of-document token. An empty value takes all defaults."},
}}

var tokenizeObject = object{title: "tokenize", short: "encoding", fields: []field{
	{key: "encoding", name: "Encoding", kind: textKind, def: "bytes", enum: encodingNames(),
		doc: "The encoding; `bytes` makes every byte a token and needs no file."},
	{key: "ranks", name: "Ranks", kind: textKind, empty: true,
		doc: "The rank file (`.tiktoken`) of the encoding, relative to the spec's folder. Required by all encodings but `bytes`."},
}}

var appendEODObject = object{title: "append_eod", short: "id", fields: []field{
	{key: "id", name: "ID", kind: countKind, max: math.MaxInt32, auto: "the encoding's own: " + endOfTextIDs(),
		doc: "The token's id. Required after `tokens`."},
}}

var longObject = object{title: "long", short: "rule", fields: []field{
	{key: "rule", name: "Rule", kind: textKind, def: "split", enum: []string{"split", "truncate", "drop"},
		doc: "Split into several samples, keep the first `max` tokens, or leave the sample out."},
	{key: "max", name: "Max", kind: countKind, min: 1, max: maxRow, auto: "`batch.sequence_length`",
		doc: "Tokens up to which a sample is left as it is; at most `batch.sequence_length`."},
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
		doc: "With `skip`: the job stops when more than so many were skipped in one epoch."},
}}

var mixObject = object{title: "mix", fields: []field{
	{key: "unit", name: "Unit", kind: textKind, def: "tokens", enum: []string{"tokens", "samples"},
		doc: "What the weights count."},
	{key: "weights", kind: weightsKind,
		doc: "Shorthand for one stage with these weights."},
	{key: "stages", name: "Stages", kind: objectKind, list: true, object: &stageObject, auto: "all weight on the source, if there is one only",
		doc: "The weights over time, by rising start step."},
	{key: "epochs", name: "Epochs", kind: countKind, max: math.MaxInt32,
		doc: "Times that any source may be read through; 0 sets no limit."},
	{key: "exhausted", name: "Exhausted", kind: textKind, def: "stop", enum: []string{"stop", "renormalize"},
		doc: "When a source has reached `epochs`: end the data, or go on with the other sources. Without `epochs` a source starts again by itself."},
}}

var stageObject = object{title: "A stage", fields: []field{
	{key: "from", name: "From", kind: countKind, max: math.MaxInt64 / 4,
		doc: "The first step of the stage; steps count from 0, the first stage starts at 0."},
	{key: "ramp", name: "Ramp", kind: textKind, def: "none", enum: []string{"none", "linear", "cosine"},
		doc: "How the weights get here from the stage before."},
	{key: "over", name: "Over", kind: countKind, max: math.MaxInt64 / 4,
		doc: "Steps the ramp takes, from `from` on."},
	{key: "weights", name: "Weights", kind: weightsKind, required: true,
		doc: "Weights by source name. They are divided by their sum; a source that is not named has weight 0."},
}}

var batchObject = object{title: "batch", fields: []field{
	{key: "sequence_length", name: "SequenceLength", kind: countKind, required: true, min: 1, max: maxRow,
		doc: "Tokens in a row."},
	{key: "sequences", name: "Sequences", kind: countKind, min: 1, max: maxAxis, auto: "`tokens` / `sequence_length`",
		doc: "Rows in one step over all DP ranks."},
	{key: "tokens", kind: countKind, min: 1, max: maxRow * maxAxis,
		doc: "Tokens in one step, in place of `sequences`; a multiple of `sequence_length`."},
	{key: "microbatch_size", name: "MicrobatchSize", kind: countKind, def: 1, min: 1, max: maxAxis, free: freeMicro,
		doc: "Rows in one microbatch of one DP rank."},
	{key: "packing", name: "Packing", kind: flagKind, def: true,
		doc: "Several samples in a row."},
}}

var axes = []string{"tp", "cp", "dp", "pp"}

var topologyObject = object{title: "topology", fields: []field{
	{key: "dp", name: "DP", kind: countKind, def: 1, min: 1, max: maxAxis, doc: "Data-parallel size."},
	{key: "cp", name: "CP", kind: countKind, def: 1, min: 1, max: maxAxis, doc: "Context-parallel size."},
	{key: "pp", name: "PP", kind: countKind, def: 1, min: 1, max: maxAxis, doc: "Pipeline-parallel size."},
	{key: "tp", name: "TP", kind: countKind, def: 1, min: 1, max: maxAxis, doc: "Tensor-parallel size."},
	{key: "vpp", name: "VPP", kind: countKind, def: 1, min: 1, max: maxAxis,
		doc: "Virtual pipeline stages on a rank."},
	{key: "order", name: "Order", kind: textKind, list: true, def: axes, enum: axes,
		doc: "The axes, those with neighbouring ranks first. The default is Megatron's."},
}}

var outputObject = object{title: "output", fields: []field{
	{key: "format", name: "Format", kind: textKind, def: "megatron", enum: []string{"megatron", "hf"},
		doc: "Names and types of the tensors: as Megatron-LM or as Hugging Face Transformers have them."},
	{key: "cp_slicing", name: "CPSlicing", kind: textKind, def: "zigzag", enum: []string{"zigzag", "contiguous", "none"}, free: freeDelivery,
		doc: "How rows are cut for CP ranks: two chunks from both ends, one range, or not at all."},
	{key: "broadcast_at", name: "BroadcastAt", kind: textKind, empty: true, enum: []string{"tp"}, auto: "none: every rank fetches", free: freeDelivery,
		doc: "`tp`: only the first rank of each TP group fetches, and broadcasts."},
	{key: "pad_id", name: "PadID", kind: countKind, max: math.MaxInt32,
		doc: "The token id in the padding of rows."},
}}

var resourcesObject = object{title: "resources", fields: []field{
	{key: "loader_buffer", name: "LoaderBuffer", kind: bytesKind, def: int64(512 << 20), min: 1, max: maxBytes,
		doc: "Samples a loader may hold."},
	{key: "constructor_buffer", name: "ConstructorBuffer", kind: bytesKind, def: int64(256 << 20), min: 1, max: maxBytes,
		doc: "Assembled batches a constructor may hold."},
	{key: "prefetch", name: "Prefetch", kind: countKind, def: 4, min: 1, max: maxAxis,
		doc: "Steps planned ahead of the slowest trainer."},
	{key: "window", name: "Window", kind: countKind, def: 256, min: 1, max: maxAxis,
		doc: "Samples of each source known ahead to the planner."},
}}
