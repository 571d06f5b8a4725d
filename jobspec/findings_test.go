package jobspec

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// base is a valid spec; the tables replace single lines of it.
const base = `name: demo
sources:
  - name: a
    files: a/*.txt
  - name: b
    files: b/*.txt
mix: {weights: {a: 0.5, b: 0.5}}
batch: {sequence_length: 64, sequences: 8}
topology: {dp: 2, cp: 2}
output: {}
`

// split is base with other ends of its lines for the batch and the output.
func split(batch, output string) string {
	text := strings.Replace(base, "sequences: 8}", "sequences: 8, "+batch, 1)
	return strings.Replace(text, "output: {}", "output: {format: megatron-thd"+output, 1)
}

// with returns base with one line (from 1) replaced; line 0 replaces all.
func with(line int, text string) string {
	if line == 0 {
		return text
	}
	lines := strings.Split(base, "\n")
	lines[line-1] = text
	return strings.Join(lines, "\n")
}

const (
	sourceFields = "name, files, format, chunk_bytes, transforms, keep, long, shuffle, bad_records, max_record, max_elements, limit"
	batchFields  = "sequence_length, sequences, tokens, microbatch_size, packing, context_split, fill, outliers"
	specFields   = "name, seed, sources, mix, batch, strategy, topology, output, resources"
	nameValid    = `valid are printable characters without a space at either end, such as web or "Wikipedia (en)"`
	countValid   = "valid is a whole number such as 4096, 100k or 64Ki"
	chain        = "    transforms: "
	pathValid    = "a field name belongs here (valid: text, meta.title, messages[].content)"
)

var findingRows = []struct {
	line int
	text string
	want string
}{
	// What YAML takes for something else.
	{4, "    files: *.jsonl", `f:4: sources[0].files: *.jsonl is an alias to YAML, as it begins with *, quote it: "*.jsonl"`},
	{4, "    files: **/*.jsonl", `f:4: syntax: unexpected scalar value type, quote it: "**/*.jsonl"`},
	{4, "    files: a\n    transforms: [{text: {text}}, {tokenize: bytes}]", `f:5: sources[0].transforms[0].text: is a group of fields to YAML, as it begins with {, quote it: "{text}"`},
	{4, "    files: a\n    transforms:\n      - text: {title} {body}", `f:6: syntax: value is not allowed in this context, quote it: "{title} {body}"`},
	// Fields and types.
	{8, "batch: {sequence_length: 64, seqences: 8, sequences: 8}", `f:8: batch.seqences: unknown field, did you mean "sequences"? Valid are ` + batchFields},
	{8, "batch: {sequence_length: 64, sequences: 8}\nzzz: 1", "f:9: zzz: unknown field, valid are " + specFields},
	{4, "    files: a\n    \"odd key\": 1", `f:5: sources[0]["odd key"]: unknown field, valid are ` + sourceFields},
	{1, "", "f:2: name: is missing, valid is a text"},
	{1, "name:", "f:1: name: is missing, valid is a text"},
	{1, `name: ""`, "f:1: name: is empty, valid is a text"},
	{1, "name: [x]", "f:1: name: is a list, valid is a text"},
	{1, "name: {x: y}", "f:1: name: is a group of fields, valid is a text"},
	{4, "", "f:3: sources[0].files: is missing, valid is a list, each item a text"},
	{4, "    files: []", "f:4: sources[0].files: is an empty list, valid is a list, each item a text"},
	{4, "    files: [a, ~]", "f:4: sources[0].files[1]: is empty, valid is a text"},
	{4, "    files: {a: b}", "f:4: sources[0].files: is a group of fields where a list is needed, valid is a list, each item a text"},
	{0, "name: a\nsources: []\nbatch: {sequence_length: 1, sequences: 1}", "f:2: sources: is an empty list, valid is a list, each item a group of " + sourceFields},
	{0, "name: a\nsources: x\nbatch: {sequence_length: 1, sequences: 1}", `f:2: sources: "x" where a list is needed, valid is a list, each item a group of ` + sourceFields},
	{0, "name: a\nsources: [x]\nbatch: {sequence_length: 1, sequences: 1}", `f:2: sources[0]: "x" where a group of fields is needed, valid fields are ` + sourceFields},
	{8, "", "f:1: batch: is missing, valid is a group of " + batchFields},
	{8, "batch: {sequences: 8}", "f:8: batch.sequence_length: is missing, " + countValid},
	{8, "batch: {sequence_length: 64}", "f:8: batch.sequences: is missing, give the rows of one step as sequences, or its tokens as tokens"},
	{8, "batch: {sequence_length: 64, sequences: 8, tokens: 512}", "f:8: batch.tokens: is given together with sequences, keep one of the two"},
	{8, "batch: {sequence_length: long, sequences: 8}", `f:8: batch.sequence_length: "long" is not a whole number, ` + countValid},
	{8, "batch: {sequence_length: 1.5, sequences: 8}", `f:8: batch.sequence_length: "1.5" is not a whole number, ` + countValid},
	{8, "batch: {sequence_length: 0, sequences: 8}", "f:8: batch.sequence_length: 0 is too small, valid is 1 or more"},
	{8, "batch: {sequence_length: -4, sequences: 8}", "f:8: batch.sequence_length: -4 is too small, valid is 1 or more"},
	{8, "batch: {sequence_length: 1e30, sequences: 8}", "f:8: batch.sequence_length: 1000000000000000000000000000000 is too large, valid is at most 16777216"},
	{8, "batch: {sequence_length: 64, sequences: 8, packing: maybe}", `f:8: batch.packing: "maybe" is neither true nor false, valid are true and false`},
	{10, "resources: {loader_buffer: much}", `f:10: resources.loader_buffer: "much" is not a whole number, valid is a number of bytes such as 64MiB or 64mb`},
	{1, "name: demo\nseed: -1", "f:2: seed: -1 is too small, valid is 0 or more"},
	{1, "name: demo\nseed: 18446744073709551616", "f:2: seed: 18446744073709551616 is too large, valid is at most 18446744073709551615"},
	{1, "name: ${MILLRACE}", "f:1: name: the environment variable MILLRACE is not set, set it, write ${VAR:-default}, or write $$ for a plain dollar sign"},

	// Names.
	{5, "  - name: a", `f:5: sources[1].name: "a" is also the name of sources[0], give each source a name of its own`},
	{5, `  - name: "b\x01"`, `f:5: sources[1].name: the name "b\x01" has unprintable characters, ` + nameValid},
	{5, `  - name: " b"`, `f:5: sources[1].name: the name " b" begins or ends with a space, ` + nameValid},
	{1, "name: " + strings.Repeat("x", 201), "f:1: name: the name has 201 bytes, valid are at most 200"},

	// Words.
	{4, "    files: a\n    format: jsnl", `f:5: sources[0].format: unknown value "jsnl", did you mean "jsonl"? Valid are parquet, jsonl, json, webdataset, megatron, arrow, text, files`},
	{4, "    files: a\n    long: cut", `f:5: sources[0].long.rule: unknown value "cut", valid are split, truncate, drop`},
	{4, "    files: a\n    bad_records: ignore", `f:5: sources[0].bad_records.policy: unknown value "ignore", valid are stop, skip`},
	{7, "mix: {weights: {a: 0.5, b: 0.5}, exhausted: repeat}", `f:7: mix.exhausted: unknown value "repeat", valid are stop, renormalize`},
	{7, "mix: {weights: {a: 0.5, b: 0.5}, unit: token}", `f:7: mix.unit: unknown value "token", did you mean "tokens"? Valid are tokens, samples`},
	{10, "output: {format: megatronn}", `f:10: output.format: unknown value "megatronn", did you mean "megatron"? Valid are megatron, megatron-thd, hf, torchtitan, jax`},
	{10, "output: {cp_slicing: zig}", `f:10: output.cp_slicing: unknown value "zig", did you mean "zigzag"? Valid are zigzag, contiguous, none`},
	{10, "output: {broadcast_at: pp}", `f:10: output.broadcast_at: unknown value "pp", did you mean "tp"? Valid is tp`},

	// Images.
	{4, "    files: a\n" + chain + "[tokenize: bytes, image: {columns: jpg, token: 5, begin: 6, end: 7}, append_eod: {}]", ""},
	{4, "    files: a\n" + chain + "[tokenize: bytes, image: {columns: jpg}]", "f:5: sources[0].transforms[1].image.token: is missing, " + countValid},
	{4, "    files: a\n" + chain + "[tokenize: bytes, image: {token: 5}]", "f:5: sources[0].transforms[1].image.columns: is missing, valid is a list, each item a text"},
	{4, "    files: a\n" + chain + "[image: {columns: jpg, token: 5}, tokenize: bytes]", "f:5: sources[0].transforms[0].image: comes before there are tokens, move it after tokenize or tokens"},
	{4, "    files: a\n" + chain + "[tokenize: bytes, append_eod: {}, image: {columns: jpg, token: 5}]", "f:5: sources[0].transforms[2].image: comes after append_eod, move it before: a record may have an image and no other token, and its end needs a mark too"},
	{4, "    files: a\n" + chain + "[tokenize: bytes, image: {columns: [jpg, a..b], token: 5}]", `f:5: sources[0].transforms[1].image.columns[1]: field path "a..b": character 2: ` + pathValid},
	{4, "    files: a\n" + chain + "[tokenize: bytes, image: {columns: jpg, token: 5, min_pixels: 9000, max_pixels: 8000}]", "f:5: sources[0].transforms[1].image.min_pixels: 9000 is more than max_pixels 8000, valid is at most 8000"},
	{4, "    files: a\n" + chain + "[tokenize: bytes, image: {columns: jpg, token: 5, min_pixels: 0, max_pixels: 783}]", "f:5: sources[0].transforms[1].image.max_pixels: 783 is less than one block of 28 x 28 pixels (patch * merge), valid is 784 or more"},
	{6, "    files: b\n" + chain + "[tokenize: bytes, image: {columns: jpg, token: 5}]\n  - {name: c, files: c, transforms: [tokenize: bytes, image: {columns: jpg, token: 5, patch: 16}]}", "f:8: warning: sources[2]: \"c\" has weight 0 in every stage: it is never read, give it a weight or remove the source\nf:8: sources[2].transforms[1].image.patch: is 16 here and 14 in an earlier source, one encoder takes the images of all sources: write the same"},
	{0, strings.Replace(strings.Replace(base, "output: {}", "output: {broadcast_at: tp}\nstrategy: [graph: image, distribute: world]", 1), "cp: 2}", "tp: 2}", 1), "f:11: strategy[1].distribute: images at world go to ranks that fetch nothing, as output.broadcast_at is tp, valid are dp, cp and pp"},

	// Mix.
	{7, "", "f:1: mix.weights: is missing, with several sources, give weights or stages"},
	{7, "mix: {weights: [a, b]}", "f:7: mix.weights: is a list where weights by source name are needed, valid is such as {code: 0.3, web: 0.7}"},
	{7, "mix: {weights: {a: -1, b: 1}}", `f:7: mix.weights.a: the weight "-1" is negative, valid is a number from 0 on`},
	{7, "mix: {weights: {a: .nan, b: 1}}", "f:7: mix.weights.a: NaN is not a weight, valid is a number from 0 on"},
	{7, "mix: {weights: {a: .inf, b: 1}}", "f:7: mix.weights.a: +Inf is not a weight, valid is a number from 0 on"},
	{7, "mix: {weights: {a: 1e16, b: 1}}", `f:7: mix.weights.a: the weight "1e16" is too large, valid is at most 1e+15`},
	{7, "mix: {weights: {a: half, b: 1}}", `f:7: mix.weights.a: "half" is not a number, valid is a number from 0 on`},
	{7, "mix: {weights: {a: , b: 1}}", "f:7: mix.weights.a: is empty, valid is a number from 0 on"},
	{7, "mix: {weights: {a: 0, b: 0}}", "f:7: mix.weights: all weights are 0, give at least one source a weight above 0"},
	{7, "mix: {weights: {}}", "f:7: mix.weights: is empty, give at least one source a weight above 0"},
	{7, "mix: {weights: {a: 0.5, B: 0.5}}", `f:7: mix.weights.B: there is no source "B", did you mean "b"? Valid are a, b`},
	{7, `mix: {weights: {a: 0.5, "c d": 0.5}}`, `f:7: mix.weights["c d"]: there is no source "c d", valid are a, b`},
	{7, "mix: {weights: {a: 0.5}, stages: [{weights: {b: 1}}]}", "f:7: mix.weights: is given together with stages, keep one of the two"},
	{7, "mix: {stages: [{}]}", "f:7: mix.stages[0].weights: is missing, valid is a number from 0 on"},
	{7, "mix: {stages: [{from: 3, weights: {a: 0.5, b: 0.5}}]}", "f:7: mix.stages[0].from: the first stage starts at step 3, valid is 0"},
	{7, "mix: {stages: [{ramp: linear, over: 1, weights: {a: 0.5, b: 0.5}}]}", "f:7: mix.stages[0].ramp: the first stage has no stage before it to ramp from, valid is none"},
	{7, "mix:\n  stages:\n  - weights: {a: 1}\n  - {from: 5, weights: {b: 1}}\n  - {from: 5, weights: {a: 1}}", "f:11: mix.stages[2].from: step 5 is not after the stage before, which starts at step 5, valid is 6 or more"},
	{7, "mix:\n  stages:\n  - weights: {a: 1}\n  - {from: 5, ramp: cosine, weights: {b: 1}}", "f:10: mix.stages[1].over: is missing with ramp: cosine, give the number of steps that the ramp takes, 1 or more"},
	{7, "mix:\n  stages:\n  - weights: {a: 1}\n  - {from: 5, over: 2, weights: {b: 1}}", "f:10: mix.stages[1].over: is given without a ramp, add ramp: linear or ramp: cosine, or remove over"},
	{7, "mix:\n  stages:\n  - weights: {a: 1}\n  - {from: 5, ramp: linear, over: 5, weights: {b: 1}}\n  - {from: 9, weights: {b: 1}}", "f:11: mix.stages[2].from: step 9 is inside the ramp of the stage before, which takes until step 10, valid is 10 or more"},
	{7, "mix: {weights: {a: 0.287, b: 0.5}}", "f:7: warning: mix.weights: the weights sum to 0.787: they are normalised"},
	{7, "mix: {weights: {a: 1}}", `f:5: warning: sources[1]: "b" has weight 0 in every stage: it is never read, give it a weight or remove the source`},
	{7, "mix: {weights: {a: 0.5, b: 0.5}, exhausted: renormalize}", "f:7: warning: mix.exhausted: has no effect without epochs: sources start again by themselves, give epochs, or remove exhausted"},
	{7, "mix: {weights: {a: 0.5, b: 0.5}, exhausted: renormalize, epochs: 2}", ""},
	{7, "mix: {weights: {a: 0.5, b: 0.5}, draw: random, epochs: 2}", "f:7: warning: mix.draw: with epochs, that a source is at its end shows when chance draws it: steps until then may have few samples, end the training where `millrace plan --every` shows that, or write draw: deficit or exhausted: renormalize"},
	{7, "mix: {weights: {a: 0.5, b: 0.5}, draw: random, epochs: 2, exhausted: renormalize}", ""},
	{7, "mix: {weights: {a: 1}, draw: random, epochs: 2}", `f:5: warning: sources[1]: "b" has weight 0 in every stage: it is never read, give it a weight or remove the source`},
	{7, "mix:\n  grain: epoch\n  stages:\n  - weights: {a: 1}\n  - {from: 1, weights: {b: 1}}", `f:10: mix.stages[0].weights: "b" has no weight in a stage before the last, so that with grain: epoch no epoch of all sources is ever over, and the next stage never begins, give it a small one, or count steps, with grain: step`},
	{7, "mix:\n  grain: epoch\n  stages:\n  - weights: {a: 0.99, b: 0.01}\n  - {from: 1, weights: {b: 1}}", ""},
	{7, "mix:\n  grain: substep\n  stages:\n  - weights: {a: 0.5, b: 0.5}\n  - {from: 1, ramp: linear, over: 1152921504606846975, weights: {b: 1}}", "f:11: mix.stages[1].over: 1152921504606846975 is too large, valid is at most 144115188075855871"},

	// Batch and mesh.
	{8, "batch: {sequence_length: 64, sequences: 9}", "f:8: batch.sequences: 9 is not a multiple of dp 2 * microbatch_size 1, valid are 8 and 10"},
	{8, "batch: {sequence_length: 64, sequences: 2, microbatch_size: 2}", "f:8: batch.sequences: 2 is not a multiple of dp 2 * microbatch_size 2, valid is 4"},
	{8, "batch: {sequence_length: 64, sequences: 8, outliers: {above: [16, 32], together: 4, wait: 8}}", ""},
	{8, "batch: {sequence_length: 64, sequences: 8, outliers: 64}", ""},
	{0, split("context_split: 4, outliers: 32}", "}"), "f:8: batch.outliers: does not go with batch.context_split, which gives a long sample a row as wide as it needs, remove one of the two"},
	{8, "batch: {sequence_length: 64, sequences: 8, outliers: }", ""},
	{8, "batch: {sequence_length: 64, sequences: 8, outliers: {together: 4}}", "f:8: batch.outliers.above: is missing, valid is a list, each item a whole number such as 4096, 100k or 64Ki"},
	{8, "batch: {sequence_length: 64, sequences: 8, outliers: {above: [16, 0]}}", "f:8: batch.outliers.above[1]: 0 is too small, valid is 1 or more"},
	{8, "batch:\n  sequence_length: 64\n  sequences: 8\n  outliers:\n    above:\n    - 16\n    - 16\n    - 65", "f:14: batch.outliers.above[1]: 16 is not above the length before, 16, write the lengths from the smallest on\nf:15: batch.outliers.above[2]: 65 is more than batch.sequence_length 64: no sample is so long, valid is 1 to 64"},
	{8, "batch: {sequence_length: 64, sequences: 8, outliers: {above: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]}}", "f:8: batch.outliers.above: has 17 lengths, valid are at most 16"},
	{8, "batch: {sequence_length: 64, sequences: 8, outliers: {above: 32, together: 9}}", "f:8: batch.outliers.together: 9 samples do not fit into a step of 8 rows, where each may need one, valid is 1 to 8"},
	{8, "batch: {sequence_length: 64, sequences: 80, outliers: {above: [16, 32], together: 65}}", "f:8: batch.outliers.together: 65 samples of each of 2 lengths are 130, valid is 1 to 64, as twice 128 travel in every resume token at most"},
	{8, "batch: {sequence_length: 64, sequences: 8, outliers: {above: 32, wait: 0}}", "f:8: batch.outliers.wait: 0 is too small, valid is 1 or more"},
	{9, "topology: {dp: 2, vpp: 3}", ""},
	{9, "topology: {dp: 2, vpp: 2, pp: 3}", "f:8: batch.sequences: 8 gives each DP rank 4 microbatches, not a multiple of pp 3, which the interleaved schedule of vpp 2 needs, valid are 6 and 12"},
	{8, "batch: {sequence_length: 64, tokens: 500}", "f:8: batch.tokens: 500 is not a multiple of sequence_length 64, valid are 448 and 512"},
	{8, "batch: {sequence_length: 64, tokens: 10}", "f:8: batch.tokens: 10 is not a multiple of sequence_length 64, valid is 64"},
	{8, "batch: {sequence_length: 4, tokens: 400M}", "f:8: batch.tokens: 400000000 tokens are 100000000 rows, valid are at most 1048576 rows"},
	{8, "batch: {sequence_length: 66, sequences: 8}", "f:8: batch.sequence_length: 66 is not a multiple of 2 * cp = 4, which cp_slicing: zigzag needs, valid are 64 and 68"},
	{9, "topology: {cp: 3}\noutput: {cp_slicing: contiguous}\nx-y:", "f:8: batch.sequence_length: 64 is not a multiple of cp = 3, which cp_slicing: contiguous needs, valid are 63 and 66\nf:12: output: is given twice, first on line 10, keep one of the two"},
	{10, "output: {document_multiple: 4}", "f:10: output.document_multiple: is given with format: megatron, which does not pad documents, remove it, or write format: megatron-thd"},
	{10, "output: {format: hf, document_multiple: 3, pad_id: -1}", "f:10: output.document_multiple: is given with format: hf, which does not pad documents, remove it, or write format: megatron-thd\nf:10: output.pad_id: -1 is too small, valid is 0 or more"},
	{10, "output: {format: megatron-thd, document_multiple: 6, pad_id: -1}", "f:10: output.document_multiple: 6 is not a multiple of 2 * cp = 4, valid are 4 and 8\nf:10: output.pad_id: -1 is too small, valid is 0 or more"},
	{10, "output: {format: megatron-thd, document_multiple: 0}", "f:10: output.document_multiple: 0 is too small, valid is 1 or more"},
	{10, "output: {format: megatron-thd, document_multiple: 6}", "f:10: output.document_multiple: 6 is not a multiple of 2 * cp = 4, valid are 4 and 8"},
	{10, "output: {format: megatron-thd, document_multiple: 12}", "f:8: batch.sequence_length: 64 is not a multiple of output.document_multiple 12, valid are 60 and 72"},
	{10, "output: {format: megatron-thd, pad_id: 1}", "f:10: output.pad_id: 1, but the padding of format: megatron-thd holds 0, valid is 0"},
	{0, split("context_split: 3}", "}"), "f:8: batch.context_split: 3 is not a power of two, valid are 2 and 4"},
	{0, split("context_split: 1}", "}"), "f:8: batch.context_split: 1 is too small, valid is 2 or more"},
	{0, split("context_split: 8}", "}"), "f:8: batch.context_split: 8 does not divide the pool of dp 2 * cp 2 ranks, valid are the powers of two that do"},
	{0, strings.Replace(split("context_split: 4}", "}"), "sequences: 8", "sequences: 6", 1), "f:8: batch.sequences: 6 is not a multiple of the pool of dp 2 * cp 2 ranks, valid are 4 and 8"},
	{8, "batch: {sequence_length: 64, sequences: 8, context_split: 4}", "f:10: output.format: megatron has no rows of several widths, which batch.context_split makes, valid is megatron-thd"},
	{0, split("context_split: 4, microbatch_size: 2}", "}"), "f:8: batch.microbatch_size: 2 rows of one microbatch may have several widths with context_split, valid is 1"},
	{0, split("context_split: 4, packing: false}", "}"), "f:8: batch.packing: is off, and context_split fills wide rows with several samples, valid is true"},
	{0, split("context_split: 4}", ", cp_slicing: none}"), "f:10: output.cp_slicing: none does not cut documents one by one, as batch.context_split needs it, valid is zigzag"},
	{0, split("context_split: 4}", ", document_multiple: 4}"), "f:10: output.document_multiple: 4 is not a multiple of 2 * context_split = 8, valid is 8"},
	{0, strings.Replace(split("context_split: 4}", "}"), "64", "16Mi", 1), "f:8: batch.context_split: rows of 4 * 16777216 tokens are too long, valid is at most 16777216 tokens"},
	{0, split("context_split: 4}", "}\nstrategy: [{distribute: dp}]"), "f:11: strategy[0].distribute: rows are distributed at cp, not at dp, valid is cp: with batch.context_split all dp * cp ranks are one pool"},
	{0, split("context_split: 4}", "}\nstrategy: [{distribute: {axis: cp, group_size: 2}}]"), "f:11: strategy[0].distribute.group_size: 2 is given with batch.context_split, whose rows are placed over all ranks at once, valid is 1"},
	{0, split("context_split: 4}", "}\nstrategy: [{distribute: cp}, {cost: linear}, {balance: {level: intra}}]"), "f:8: warning: batch: has no fill: rows are as full as they get, which leaves little room to make them cost alike, `millrace plan` says which fill makes steps fastest, and which tokens it costs"},
	{0, split("context_split: 4, fill: 900}", "}\nstrategy: [{distribute: cp}, {cost: linear}, {balance: {level: interleaved}}]"), ""},
	{8, "batch: {sequence_length: 64, sequences: 8, fill: 950}", "f:8: batch.fill: leaves room in rows, and nothing makes rows cost alike, add a balance at level interleaved or intra, or remove fill"},
	{8, "batch: {sequence_length: 64, sequences: 8, fill: 499}", "f:8: batch.fill: 499 is too small, valid is 500 or more"},
	{8, "batch: {sequence_length: 64, sequences: 8, fill: 1001}", "f:8: batch.fill: 1001 is too large, valid is at most 1000"},
	{0, split("context_split: 4}", "}\nstrategy: [{distribute: cp}, {cost: linear}, {balance: kk}]"), "f:11: strategy[2].balance.method: kk balances rows of one width, and batch.context_split makes several, valid is auto"},
	{0, strings.Replace(split("context_split: 4}", "}"), "cp: 2}", "cp: 2, order: [tp, dp, cp, pp]}", 1), "f:9: topology.order: has dp before cp, and the ranks that share a row are neighbours in cp first, write cp before dp"},
	{0, strings.Replace(split("context_split: 4}", "}"), "cp: 2}", "cp: 2, pp: 3, vpp: 2}", 1), "f:8: batch.sequences: 8 is not a multiple of the pool of dp 2 * cp 2 ranks * pp 3, which the interleaved schedule of vpp 2 needs, valid is 12"},
	{0, strings.Replace(split("context_split: 4}", "}"), "files: a/*.txt", "files: a/*.txt\n    transforms: [{tokenize: bytes}, {image: {columns: jpg, token: 300}}]", 1), "f:5: sources[0].transforms: has an image step, and context_split is for tokens only, remove one of the two"},
	{0, strings.Replace(split("context_split: 4}", "}"), "files: a/*.txt", "files: a/*.txt\n    long: {max: 257}", 1), "f:5: sources[0].long.max: 257 is more than batch.sequence_length * context_split = 256, valid is 1 to 256"},
	{10, "output: {format: megatron-thd, cp_slicing: contiguous}", "f:10: output.cp_slicing: contiguous would cut through documents, which format: megatron-thd cuts one by one, valid are zigzag, none"},
	{10, "output: {format: torchtitan}", "f:10: output.cp_slicing: zigzag would cut what torchtitan cuts itself, valid is none"},
	{10, "output: {format: torchtitan, cp_slicing: none}", ""},
	{9, "topology: {dp: 0}", "f:9: topology.dp: 0 is too small, valid is 1 or more"},
	{9, "topology: {order: [tp, cp, dp, xp]}", `f:9: topology.order[3]: unknown value "xp", did you mean "tp"? Valid are tp, cp, dp, pp, vpp, ep`},
	{9, "topology: {tp: 1048576, pp: 16}", ""},
	{9, "topology: {tp: 1048576, pp: 17}", "f:9: topology: dp 1 * cp 1 * pp 17 * tp 1048576 are more ranks than a mesh may have, valid are at most 16777216"},
	{9, "topology: {ep: 3}", "f:9: topology.ep: 3 does not divide dp 1 * cp 1, the ranks that experts are laid over, valid are the divisors of 1"},
	{9, "topology: {vpp: 1, ep: 1, order: [tp, cp, ep, vpp, dp, pp]}", ""},
	{9, "topology: {order: [tp, cp, ep, dp, ep, pp]}", "f:9: topology.order[4]: ep is named twice, valid is each of tp, cp, dp, pp once"},
	{9, "topology: {order: [tp, cp, dp]}", "f:9: topology.order: the axis pp is missing, valid is each of tp, cp, dp, pp once"},
	{9, "topology: {order: [tp, cp, dp, pp, cp]}", "f:9: topology.order[4]: cp is named twice, valid is each of tp, cp, dp, pp once"},
	{10, "output: {format: hf}\nresources: {window: 0}", "f:11: resources.window: 0 is too small, valid is 1 or more"},
	// Strategy. It stands on line 11.
	{10, "\nstrategy: mine", ""},
	{10, "\nstrategy: {use: mine}", ""},
	{10, "\nstrategy: {use: mine, cost: linear}", "f:11: strategy[0]: has use and cost in one step, write each as a list item of its own"},
	{10, "\nstrategy: [distribute: dp, cost: quadratic, {balance: {level: interleaved}}, broadcast_at: tp, graph: image, distribute: {axis: world, group_size: 2}, cost: vit-2b, balance: lpt]", "f:8: warning: batch: has no fill: rows are as full as they get, which leaves little room to make them cost alike, `millrace plan` says which fill makes steps fastest, and which tokens it costs"},
	{10, "\nstrategy: [use: mine, distribute: dp]", `f:11: strategy[0].use: "mine" is a whole strategy and stands beside other entries, keep it alone, or with ` + "`distribute: cp`" + ` behind it, which says where its rows go; or write out what it does`},
	{10, "\nstrategy: [distribute: dq]", `f:11: strategy[0].distribute.axis: unknown value "dq", did you mean "dp"? Valid are dp, cp, pp, tp, world`},
	{10, "\nstrategy: [distribute: world]", "f:11: strategy[0].distribute: rows are distributed at dp or cp, not at world, valid are dp, where the cp ranks of a dp index share a row, and cp, where each has rows of its own; after `graph: image` any axis"},
	{10, "\nstrategy: [distribute: {group_size: 3}]", "f:11: strategy[0].distribute.group_size: 3 does not divide the 2 buckets at dp, valid are 1 for no groups and the divisors of 2; with last_group: smaller the last group has those that are left"},
	{10, "\nstrategy: [distribute: {group_size: 3, last_group: smaller}]", ""},
	{10, "\nstrategy: [distribute: {group_size: 3, last_group: small}]", `f:11: strategy[0].distribute.last_group: unknown value "small", did you mean "smaller"? Valid are equal, smaller`},
	{10, "output: {format: megatron-thd}\nstrategy: [distribute: cp]", ""},
	{10, "output: {format: megatron-thd}\nstrategy: [use: mine, distribute: cp]", ""},
	{10, "output: {cp_slicing: zigzag}\nstrategy: [distribute: cp]", "f:10: output.format: megatron cannot say that a microbatch is not cut over cp ranks, as `distribute: cp` has it, valid is megatron-thd"},
	{0, strings.Replace(split("microbatch_size: 2}", "}\nstrategy: [distribute: cp]"), "sequences: 8", "sequences: 12", 1), "f:8: batch.sequences: 12 is not a multiple of the pool of dp 2 * cp 2 ranks * microbatch_size 2, valid are 8 and 16"},
	{0, strings.Replace(split("packing: true}", "}\nstrategy: [distribute: cp]"), "    files: a/*.txt\n", "    files: a/*.txt\n"+chain+"[tokenize: bytes, image: {columns: jpg, token: 5}]\n", 1), "f:5: sources[0].transforms: has an image step, and rows at cp are for tokens only, remove one of the two"},
	{10, "\nstrategy: [distribute: dp, cost: linear, {balance: {level: intra, row_method: mine}}]", "f:8: warning: batch: has no fill: rows are as full as they get, which leaves little room to make them cost alike, `millrace plan` says which fill makes steps fastest, and which tokens it costs"},
	{10, "\nstrategy: [distribute: dp, cost: linear, {balance: {row_method: mine}}]", "f:11: strategy[2].balance.row_method: mine moves samples between rows, which level inter does not, valid levels are intra and interleaved"},
	{10, "\nstrategy: [cost: linear, graph: {of: text, sources: b}, cost: quadratic, graph: {of: image, sources: [a]}, distribute: world, graph: image, distribute: world]", ""},
	{10, "\nstrategy: [cost: linear, graph: {of: text, sources: c}, cost: quadratic]", `f:11: strategy[1].graph.sources[0]: there is no source "c", valid are a, b`},
	{10, "\nstrategy: [cost: linear, graph: {of: text, sources: [a, a]}, cost: quadratic]", `f:11: strategy[1].graph.sources[1]: "a" is in a graph of text already, name each source once`},
	{10, "\nstrategy: [graph: {of: image, sources: a}, distribute: world, graph: {of: image, sources: [b, a]}, distribute: world]", `f:11: strategy[2].graph.sources[1]: "a" is in a graph of image already, name each source once`},
	{10, "\nstrategy: [graph: {of: image, sources: a}, distribute: world, graph: image, distribute: dp]", "f:11: strategy[3].distribute: images are at world and at dp, take one axis for the images of all sources"},
	{10, "\nstrategy: [graph: {of: text, sources: a}, cost: linear]", "f:11: strategy[1].cost: is what samples of some sources cost, and the graph of text says nothing of the others, write a cost before `graph`"},
	{10, "\nstrategy: [cost: linear, graph: {of: text, sources: a}, distribute: dp]", "f:11: strategy[2].distribute: rows have samples of all sources, write it before `graph`, where it is about all rows"},
	{10, "\nstrategy: [cost: linear, graph: {of: text, sources: a}, balance: auto]", "f:11: strategy[2].balance: rows have samples of all sources, write it before `graph`, where it is about all rows"},
	{10, "\nstrategy: [graph: image, distribute: {axis: cp, group_size: 3}]", "f:11: strategy[1].distribute.group_size: 3 does not divide the 4 buckets at cp, valid are 1 for no groups and the divisors of 4; with last_group: smaller the last group has those that are left"},
	{10, "\nstrategy: [distribute: dp, distribute: dp]", "f:11: strategy[1].distribute: is the second distribute of the graph of text, a graph has one: keep one of the two"},
	{10, "\nstrategy: [distribute: dp, graph: text]", "f:11: strategy[1].graph: the graph of text began before, write what acts on it in one place"},
	{10, "\nstrategy: [balance: auto]", "f:11: strategy[0].balance: there is no distribute before it, write distribute before it"},
	{10, "\nstrategy: [distribute: dp, balance: auto]", "f:11: strategy[1].balance: there is no cost before it, write cost before it"},
	{10, "\nstrategy: [distribute: dp, balance: {keep_order: true}]", ""},
	{10, "\nstrategy: [distribute: dp, cost: linear, balance: zigzag]", `f:11: strategy[2].balance.method: unknown value "zigzag", valid are auto, lpt, kk`},
	{10, "\nstrategy: [graph: image, distribute: dp, cost: linear, {balance: {level: intra}}]", "f:11: strategy[3].balance.level: intra moves samples between rows, and images have none, valid is inter"},
	{10, "\nstrategy: [cost: {a: 3}]", "f:11: strategy[0].cost: has neither model nor expression, valid is such as quadratic, or {expression: tokens * tokens}"},
	{10, "\nstrategy: [cost: {model: linear, expression: tokens}]", "f:11: strategy[0].cost: has a model and an expression, keep one of the two"},
	{10, "\nstrategy: [cost: {expression: tokens, of: patches}]", "f:11: strategy[0].cost: has an expression and of=patches, and an expression takes no parameters, write the value into the expression"},
	{10, "\nstrategy: [cost: qudratic]", `f:11: strategy[0].cost: "qudratic": there is no such model`},
	{10, "\nstrategy: [broadcast_at: tp]", "f:11: strategy[0].broadcast_at: there is no distribute before it, write distribute before it"},
	{10, "output: {broadcast_at: ''}\nstrategy: [distribute: dp, broadcast_at: tp]", `f:11: strategy[1].broadcast_at: is tp, and output.broadcast_at is "", keep one of the two`},

	{4, "    files: a\n    long: {max: 65}", "f:5: sources[0].long.max: 65 is more than batch.sequence_length 64, valid is 1 to 64"},

	// Chains. They stand on line 5.
	{4, "    files: a\n" + chain + "[tokenize: gpt2]", `f:5: sources[0].transforms[0].tokenize.encoding: unknown value "gpt2", valid are bytes, r50k_base, cl100k_base, o200k_base`},
	{4, "    files: a\n" + chain + "[tokenize: {encoding: o200k_base, ranks: r, sha256: 12}]", `f:5: sources[0].transforms[0].tokenize.sha256: "12" is not a SHA-256, valid are 64 hex digits in lower case, as sha256sum prints them`},
	{4, "    files: a\n" + chain + "[tokenize: {sha256: " + strings.Repeat("0a", 32) + "}]", "f:5: sources[0].transforms[0].tokenize.sha256: is given without a rank file, name the file as ranks, or remove it"},
	{4, "    files: a\n" + chain + "[tokenize: o200k_base]", "f:5: sources[0].transforms[0].tokenize.ranks: is missing, encoding o200k_base needs its rank file, such as tokenizers/o200k_base.tiktoken"},
	{4, "    files: a\n" + chain + "[tokenize: {ranks: x}]", "f:5: sources[0].transforms[0].tokenize.ranks: is not used by encoding bytes, remove it, or name the encoding that the file belongs to"},
	{4, "    files: a\n" + chain + "[tokenize: bytes, tokenize: bytes]", "f:5: sources[0].transforms[1].tokenize: is the second tokenize of the chain, a chain has one: keep one of the two"},
	{4, "    files: a\n" + chain + "[{append_eod: }, tokenize: bytes]", "f:5: sources[0].transforms[0].append_eod: comes before there are tokens, move it after tokenize or tokens"},
	{4, "    files: a\n" + chain + "[tokens: ids, tokenize: bytes]", "f:5: sources[0].transforms[1].tokenize: comes after tokens, tokens take the place of text and tokenize: keep the one or the other"},
	{4, "    files: a\n" + chain + "[tokenize: bytes, tokens: ids]", "f:5: sources[0].transforms[1].tokens: comes after text or tokenize, tokens take the place of both: keep the one or the other"},
	{4, "    files: a\n" + chain + "[tokenize: bytes, text: '{x}']", "f:5: sources[0].transforms[1].text: comes after tokenize, move text before tokenize"},
	{4, "    files: a\n" + chain + "[tokens: ids, append_eod: {}]", "f:5: sources[0].transforms[1].append_eod.id: is missing, after tokens there is no encoding to take it from: write such as append_eod: 50256"},
	{4, "    files: a\n" + chain + "[chat: {}, tokenize: bytes]", ""},
	{4, "    files: a\n" + chain + "[chat: {train_on: last, tools: t, variables: a=1, date: '2026-11-03'}, filter: 'true', tokenize: bytes]", ""},
	{4, "    files: a\n" + chain + "[text: '{x}', chat: {}, tokenize: bytes]", "f:5: sources[0].transforms[1].chat: stands beside another step that makes the text, chat takes the place of text, before tokenize: keep the one or the other"},
	{4, "    files: a\n" + chain + "[chat: {}, text: '{x}', tokenize: bytes]", "f:5: sources[0].transforms[1].text: stands beside another step that makes the text, chat takes the place of text, before tokenize: keep the one or the other"},
	{4, "    files: a\n" + chain + "[chat: {}, tokens: ids]", "f:5: sources[0].transforms[1].tokens: comes after chat, chat makes text: put a tokenize step behind it"},
	{4, "    files: a\n" + chain + "[chat: {}, normalize: nfc, tokenize: bytes]", "f:5: sources[0].transforms[1].normalize: comes after chat, which says by their places in the text which parts carry loss, change the messages instead, in a python step before chat, or the template"},
	{4, "    files: a\n" + chain + "[chat: {}, replace: {pattern: x}, tokenize: bytes]", "f:5: sources[0].transforms[1].replace: comes after chat, which says by their places in the text which parts carry loss, change the messages instead, in a python step before chat, or the template"},
	{4, "    files: a\n" + chain + "[chat: {variables: ['a=\"b\"', thinking]}, tokenize: bytes]", `f:5: sources[0].transforms[0].chat.variables[1]: "thinking" is not a name, = and a JSON value, valid is such as enable_thinking=false or effort="high"`},
	{4, "    files: a\n" + chain + "[chat: {variables: 'x=no'}, tokenize: bytes]", `f:5: sources[0].transforms[0].chat.variables[0]: "x=no" is not a name, = and a JSON value, valid is such as enable_thinking=false or effort="high"`},
	{4, "    files: a\n" + chain + "[chat: {date: 2026-13-30, loss: weight}, tokenize: bytes]", `f:5: sources[0].transforms[0].chat.date: "2026-13-30" is not a day, valid is such as 2026-11-03`},
	{4, "    files: a\n" + chain + "[chat: {train_on: user}, tokenize: bytes]", `f:5: sources[0].transforms[0].chat.train_on: unknown value "user", valid are assistant, last, all`},
	{4, "    files: a\n" + chain + "[chat: {messages: a..b}, tokenize: bytes]", `f:5: sources[0].transforms[0].chat.messages: field path "a..b": character 2: ` + pathValid},
	{4, "    files: a\n" + chain + "[tokens: ids, loss_mask: m, append_eod: 3]", ""},
	{4, "    files: a\n" + chain + "[tokenize: bytes, loss_mask: m]", "f:5: sources[0].transforms[1].loss_mask: has no tokens step before it, move it after tokens: the column has a value for each token of that one"},
	{4, "    files: a\n" + chain + "[tokens: ids, append_eod: 3, loss_mask: m]", "f:5: sources[0].transforms[2].loss_mask: comes after append_eod, move it before: the column has no value for the token that is appended"},
	{4, "    files: a\n" + chain + "[tokens: ids, loss_mask: m, loss_mask: m]", "f:5: sources[0].transforms[2].loss_mask: is the second loss_mask of the chain, a chain has one: keep one of the two"},
	{4, "    files: a\n" + chain + "[tokens: ids, loss_mask: a..b]", `f:5: sources[0].transforms[1].loss_mask: field path "a..b": character 2: ` + pathValid},
	{4, "    files: a\n" + chain + "[text: '{x}']", "f:5: sources[0].transforms: no step gives tokens, add tokenize: bytes or another encoding, or tokens with the column that holds them"},
	{4, "    files: a\n" + chain + "[{text: '{x}', tokenize: bytes}]", "f:5: sources[0].transforms[0]: has text and tokenize in one step, write each as a list item of its own"},
	{4, "    files: a\n" + chain + "[{}]", "f:5: sources[0].transforms[0]: is empty, valid is one of text, chat, tokens, loss_mask, filter, tokenize, append_eod, image, python, call, normalize, replace, limit, group, pixels, waveform, convert, frames, probe"},
	{4, "    files: a\n" + chain + "[{frames: mp4}, {probe: mp4}, tokenize: bytes]", ""},
	{4, "    files: a\n" + chain + "[{frames: {column: mp4, fps: 0.5, from: 1.5, to: 2, resize: exact, size: 16}}, tokenize: bytes]", ""},
	{4, "    files: a\n" + chain + "[{frames: {column: mp4, fps: 2, every: 5}}, tokenize: bytes]", "f:5: sources[0].transforms[0].frames: chooses frames in more than one way, keep one of uniform, fps and every, or none of them for key frames"},
	{4, "    files: a\n" + chain + "[{frames: {column: mp4, to: 2, duration: 3}}, tokenize: bytes]", "f:5: sources[0].transforms[0].frames.duration: is given beside to, keep one of them"},
	{4, "    files: a\n" + chain + "[{frames: {column: mp4, fps: 0}}, tokenize: bytes]", "f:5: sources[0].transforms[0].frames.fps: is 0, give a number above 0"},
	{4, "    files: a\n" + chain + "[{frames: {column: mp4, from: -1}}, tokenize: bytes]", "f:5: sources[0].transforms[0].frames.from: \"-1\" is not a number of 0 or more, give a decimal number, such as 1.5"},
	{4, "    files: a\n" + chain + "[{frames: {column: mp4, from: 3, to: 2.5}}, tokenize: bytes]", "f:5: sources[0].transforms[0].frames.to: is 2.5, not behind from, 3, a clip ends after it begins"},
	{4, "    files: a\n" + chain + "[{frames: {column: mp4, resize: exact}}, tokenize: bytes]", "f:5: sources[0].transforms[0].frames.size: is missing: resize exact needs it, give [height, width] or one number, such as 224"},
	{4, "    files: a\n" + chain + "[tokenize: bytes, {pixels: jpg}]", ""},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, resize: shortest, size: 256, crop: [224, 192], crop_at: random, flip: 50, dtype: float32, mean: [0.485, 0.456, 0.406], std: 0.229}}, tokenize: bytes]", ""},
	{4, "    files: a\n" + chain + "[{pixels: {}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.column: is missing, valid is a text"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, resize: exact}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.size: is missing: resize exact needs it, give [height, width] or one number, such as 224"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, size: 4}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.size: is not used by resize none, say resize: exact, shortest or area, or remove it"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, resize: shortest, size: [4, 5]}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.size: has 2 numbers, resize shortest takes one, the others [height, width] or one"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, resize: within}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.max_pixels: is missing: resize within needs it, give the area in pixels, such as 512Ki"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, max_pixels: 9}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.max_pixels: is not used by resize none, say resize: within, or remove it"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, area: [8, 100]}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.area: is not used by resize none, say resize: area, or remove it"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, resize: area, size: 4, area: [50, 20]}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.area: is not a range, give two percentages, the lower one first: [8, 100]"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, resize: exact, size: 4, crop: [4, 5]}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.crop: is 4 x 5 pixels, more than size, 4 x 4, crop at most what resize gives"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, crop: [4, 5, 6]}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.crop: has 3 numbers, give [height, width], or one number for both"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, mean: 0.5}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.mean: is given for whole numbers, say dtype: float32, or normalize on the trainer's side"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, dtype: float32, mean: half}}, tokenize: bytes]", `f:5: sources[0].transforms[0].pixels.mean: "half" is not a number, give decimal numbers, such as 0.485`},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, dtype: float32, std: [0.2, 0.3]}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.std: has 2 numbers for 3 channels, give one, or one for each channel"},
	{4, "    files: a\n" + chain + "[{pixels: {column: jpg, dtype: float32, std: 0}}, tokenize: bytes]", "f:5: sources[0].transforms[0].pixels.std: has a number that is not above 0, give the deviations of values from 0 to 1, such as 0.229"},
	{4, "    files: a\n" + chain + "[{waveform: flac}, tokenize: bytes, append_eod: {}, {waveform: wav}]", ""},
	{4, "    files: a\n" + chain + "[{waveform: {column: flac, token: 5}}, tokenize: bytes]", "f:5: sources[0].transforms[0].waveform: comes before there are tokens, move it after tokenize or tokens"},
	{4, "    files: a\n" + chain + "[tokenize: bytes, append_eod: {}, {waveform: {column: flac, token: 5}}]", "f:5: sources[0].transforms[2].waveform: comes after append_eod, move it before: a record may have a sound and no other token, and its end needs a mark too"},
	{4, "    files: a\n" + chain + "[{waveform: {column: flac, begin: 5}}, tokenize: bytes]", "f:5: sources[0].transforms[0].waveform.token: is missing beside begin or end, give the placeholder's id, or remove both"},
	{4, "    files: a\n" + chain + "[{python: {}}, tokenize: bytes]", "f:5: sources[0].transforms[0].python.function: is missing, valid is a text"},
	{4, "    files: a\n" + chain + "[{python: clean}, tokenize: bytes]", `f:5: sources[0].transforms[0].python.function: "clean" names no function of a module, valid is module:name, such as cleaning:strip for def strip in cleaning.py`},
	{4, "    files: a\n" + chain + "[tokenize: bytes, python: a:b]", "f:5: sources[0].transforms[1].python: comes after the tokens are made, move it before tokenize or tokens"},
	{4, "    files: a\n" + chain + "[{python: {function: a:b, memory: 1k}}, tokenize: bytes]", "f:5: sources[0].transforms[0].python.memory: 1000 is too small, valid is 1048576 or more"},
	{4, "    files: a\n" + chain + "[tokenise: bytes]", `f:5: sources[0].transforms[0].tokenise: unknown field, did you mean "tokenize"? Valid are text, chat, tokens, loss_mask, filter, tokenize, append_eod, image, python, call, normalize, replace, limit, group, pixels, waveform, convert, frames, probe`},
	{4, "    files: a\n" + chain + "[limit: 0, tokenize: bytes]", "f:5: sources[0].transforms[0].limit: 0 is too small, valid is 1 or more"},
	{4, "    files: a\n" + chain + "[filter: a > 1, limit: 3, tokenize: bytes]", "f:5: sources[0].transforms[1].limit: comes after another step, move it to the front: it counts records as the files have them; a source's own limit counts samples"},
	{4, "    files: a\n" + chain + "[limit: 3, limit: 3, tokenize: bytes]", "f:5: sources[0].transforms[1].limit: is the second limit of the chain, a chain has one: keep one of the two"},
	{4, "    files: a\n" + chain + "[tokens: 'a..b']", `f:5: sources[0].transforms[0].tokens: field path "a..b": character 2: ` + pathValid},
	{4, "    files: a\n" + chain + "[text: '{a', tokenize: bytes]", `f:5: sources[0].transforms[0].text: template "{a", byte 0: { is not closed; a field is {name}, a literal brace is doubled: {{`},
	{4, "    files: a\n" + chain + "[text: '{a}}', tokenize: bytes]", `f:5: sources[0].transforms[0].text: template "{a}}", byte 3: } without {; a literal brace is doubled: }}`},
	{4, "    files: a\n" + chain + "[text: '{}', tokenize: bytes]", `f:5: sources[0].transforms[0].text: template "{}", byte 0: {} names no field; valid are {title}, {meta.title}, {messages[].content}, and {title?} for one that records may lack`},
	{4, "    files: a\n" + chain + "[text: '{a {b}', tokenize: bytes]", `f:5: sources[0].transforms[0].text: template "{a {b}", byte 0: { is not closed; a field is {name}, a literal brace is doubled: {{`},
	{4, "    files: a\n" + chain + "[text: body, tokenize: bytes]", `f:5: sources[0].transforms[0].text: template "body" names no field, so that every record would have the same text; write {body} for a field`},
	{4, "    files: a\n" + chain + "[text: '{{a}} {b.c[].d}', tokenize: bytes]", ""},
	{4, "    files: a\n" + chain + "[text: '{test[][].key}', tokenize: bytes]", ""},
	{4, "    files: a\n" + chain + `[text: '{ts\[ms\]} {a\.b} {a\}b}', tokenize: bytes]`, ""},
	{4, "    files: a\n    keep: ['ids[][]', 'size\\[px\\]']", ""},
	{4, "    files: a\n" + chain + "[text: '{ts[ms]}', tokenize: bytes]", `f:5: sources[0].transforms[0].text: template "{ts[ms]}", byte 0: field path "ts[ms]": character 2: only [] (each element) then . or the end may follow a name; write \[ for a bracket in a name (valid: text, meta.title, messages[].content)`},
	{4, "    files: a\n    keep: [jpg, a..b, jpg]", "f:5: sources[0].keep[1]: field path \"a..b\": character 2: " + pathValid + "\nf:5: sources[0].keep[2]: \"jpg\" is also keep[0], name each column once"},
	{4, "    files: a\n" + chain + "[filter: 'len(', tokenize: bytes]", "f:5: sources[0].transforms[0].filter: column 5: an operand is missing"},

	// YAML.
	{0, "", "f:1: the spec is empty, a spec has at least name, sources and batch"},
	{0, "# nothing\n", "f:1: the spec is empty, a spec has at least name, sources and batch"},
	{0, "- a\n", "f:1: is a list where a group of fields is needed, valid fields are " + specFields},
	{0, base + "---\nname: x\n", "f:12: a second YAML document starts here, a file holds one job spec"},
	{0, "name: [a, b\nseed: 1\n", "f:2: syntax: ',' or ']' must be specified"},
	{0, "name: x\n\tseed: 1\n", "f:2: syntax: found character '\t' that cannot start any token"},
	{0, "name: \xff\n", "f:1: the text is not UTF-8, save the file in UTF-8"},
	{0, "name: " + strings.Repeat("[", 60), "f:1: syntax: values nest more than 50 deep"},
	{0, "#" + strings.Repeat("x", 1<<20), "f:1: the spec has 1048577 bytes, valid are at most 1048576: " + fewerStages},
	{0, strings.Repeat("a:\n", 20_001), "f:1: syntax: the spec has 20001 keys outside of braces, documents and anchors, valid are at most 20000: write long lists in braces, such as weights: {a: 1, b: 2}, or " + fewerStages},
	{0, "{" + strings.Repeat("a:,", 50_001) + "}", "f:1: syntax: the spec has 50001 keys in braces, valid are at most 50000: " + fewerStages},
	{0, "{" + strings.Repeat("a: &x 1,", 20_001) + "}", "f:1: syntax: the spec has 20001 keys outside of braces, documents and anchors, valid are at most 20000: write long lists in braces, such as weights: {a: 1, b: 2}, or " + fewerStages},
	{0, "a: [\n" + strings.Repeat("a:\n", 20_000), "f:1: syntax: the spec has 20001 keys outside of braces, documents and anchors, valid are at most 20000: write long lists in braces, such as weights: {a: 1, b: 2}, or " + fewerStages},
	{0, "]}" + strings.Repeat("a:\n", 20_001), "f:1: syntax: the spec has 20001 keys outside of braces, documents and anchors, valid are at most 20000: write long lists in braces, such as weights: {a: 1, b: 2}, or " + fewerStages},
	{1, strings.Repeat("y", 1001) + ": 1\nname: demo", "f:1: a key here has 1001 bytes, valid are at most 1000"},
	{1, "name: demo\n? x\n: y", "f:2: a key here is not a plain word, valid keys are words, with quotes where needed"},
	{1, "name: demo\nname: demo", "f:2: name: is given twice, first on line 1, keep one of the two"},
	{1, "name: *x", "f:1: name: the alias *x has no anchor before it, write &x at the value that is meant"},
	{1, "name: !!str x", `f:1: name: "!!str" is YAML that a spec does not use, valid are plain values, lists, groups of fields, anchors, aliases and merge keys`},
	{1, "name: x\n<<: 3", "f:2: a merge key takes groups of fields, this is not one, valid is an alias such as *base, or a list of them"},
}

func TestFindings(t *testing.T) {
	filter := CheckFilter(func(s string) error {
		if s == "len(" {
			return errors.New("column 5: an operand is missing")
		}
		return nil
	})
	costs := CheckCost(func(s string) error {
		if s == "qudratic" {
			return errors.New(`cost "qudratic": there is no such model`)
		}
		return nil
	})
	if _, findings := Parse("f", []byte(base), "", Env(noEnv), filter); findings != nil {
		t.Fatalf("base: %v", findings)
	}
	for _, row := range findingRows {
		job, findings := Parse("f", []byte(with(row.line, row.text)), "", Env(noEnv), filter, costs)
		if got := findings.Error(); got != row.want {
			t.Errorf("%.200q\ngot  %s\nwant %s", row.text, got, row.want)
		}
		if (job == nil) != (findings.Err() != nil) {
			t.Errorf("%.200q: job %v with findings %v", row.text, job, findings)
		}
	}
}

// TestAllAtOnce checks that one mistake hides no other, and the order of lines.
func TestAllAtOnce(t *testing.T) {
	_, findings := Parse("f", []byte(`nmae: demo
sources:
  - name: a
    files: a.txt
    long: {max: 100}
    transforms:
      - text: "{x"
      - tokenize: bites
    fromat: text
  - name: a
    files: b.txt
mix:
  stages:
    - {from: 1, weights: {a: 0.2, c: -1}}
    - {from: 1, ramp: linear, weights: {a: 0}}
batch: {sequence_length: 66, sequences: 9}
topology: {dp: 2, cp: 2, order: [tp]}
`), "", Env(noEnv))
	var lines []string
	for _, f := range findings {
		lines = append(lines, fmt.Sprintf("%d %s", f.Line, f.Field))
	}
	want := `1 nmae
1 name
5 sources[0].long.max
7 sources[0].transforms[0].text
8 sources[0].transforms[1].tokenize.encoding
9 sources[0].fromat
10 sources[1].name
14 mix.stages[0].from
14 mix.stages[0].weights.c
15 mix.stages[1].over
15 mix.stages[1].weights
16 batch.sequence_length
16 batch.sequences
17 topology.order
17 topology.order
17 topology.order`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s\n%v", got, want, findings)
	}
}

func TestColumns(t *testing.T) {
	_, findings := Parse("f", []byte("name: demo\nsources: [{name: a, files: é, lmit: 1}]\nbatch: {sequence_length: 0, sequences: 1}\n"), "")
	if len(findings) != 2 || findings[0].Column != 31 || findings[1].Column != 9 {
		t.Errorf("got %+v", findings)
	}
}

// TestAliasBomb checks that nested aliases cost neither time nor memory.
func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("x-0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&b, "x-%d: &a%d [*a%d, *a%[3]d, *a%[3]d, *a%[3]d, *a%[3]d]\n", i, i, i-1)
	}
	_, findings := Parse("f", []byte(b.String()), "")
	if want := "f:1: the spec holds more than 500000 values, aliases followed, write less, or fewer aliases"; findings.Error() != want {
		t.Errorf("got %v", findings)
	}
}

// TestManyFindings checks the bound on a file that is no spec at all.
func TestManyFindings(t *testing.T) {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "key%d: {a: [b, c]}\n", i)
	}
	_, findings := Parse("f", []byte(b.String()), "")
	last := findings[len(findings)-1].String()
	if len(findings) != maxFindings+1 || last != "f:1000: warning: 1003 more findings are left out, fix those above first" {
		t.Errorf("got %d findings, the last: %s", len(findings), last)
	}
}

// TestWarningsHideNoError: an error counts however many warnings come first.
func TestWarningsHideNoError(t *testing.T) {
	text := "name: demo\nsources:\n"
	for i := range maxFindings + 2 {
		text += fmt.Sprintf("- {name: s%d, files: f}\n", i)
	}
	text += "mix: {weights: {s0: 1}}\nbatch: {sequence_length: 1, sequences: 3}\ntopology: {dp: 2}\n"
	if job, findings := Parse("f", []byte(text), ""); job != nil || findings.Err() == nil {
		t.Errorf("got %v with %d findings", job, len(findings))
	}
}

func TestParentField(t *testing.T) {
	for _, key := range []string{"a", "a b", `["`, `"]`, `\`, ".", "[0]", ""} {
		for _, parent := range []string{"", "x", "x.y[3]", `x["q w"]`} {
			child := childField(parent, key)
			if got := parentField(child); got != parent {
				t.Errorf("parentField(%q) = %q, want %q", child, got, parent)
			}
		}
	}
}
