package jobspec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/fieldpath"
)

// randomJob makes a valid job whose texts try the printer's quoting.
func randomJob(rng *rand.Rand) *Job {
	job := &Job{
		Name: randomName(rng), Seed: rng.Uint64(),
		Mix: Mix{Unit: pick(rng, "tokens", "samples"), Epochs: rng.IntN(3), Exhausted: pick(rng, "stop", "renormalize"),
			Grain: pick(rng, "epoch", "step", "substep"), Draw: pick(rng, "deficit", "random"),
			Feedback: Feedback{pick(rng, "none", "exponential"), 1 + rng.IntN(20), 1 + rng.IntN(500), rng.IntN(100)}},
		Topology:  Topology{DP: 1 + rng.IntN(3), CP: 1 + rng.IntN(3), PP: 1 + rng.IntN(3), TP: 1 + rng.IntN(3), VPP: 1 + rng.IntN(3), EP: 1, Order: shuffled(rng, axes)},
		Output:    Output{Format: pick(rng, "megatron", "hf", "jax"), CPSlicing: pick(rng, "zigzag", "contiguous", "none"), BroadcastAt: pick(rng, "", "tp"), PadID: int32(rng.IntN(3))},
		Resources: Resources{LoaderBuffer: 1 + rng.Int64N(1<<40), LoaderDisk: rng.Int64N(1 << 40), ConstructorBuffer: 1 << rng.IntN(40), Prefetch: 1 + rng.IntN(9), Window: 1 + rng.IntN(999), PythonWorkers: rng.IntN(3), Spill: rng.Int64N(2) << 20},
		Dir:       "/specs",
	}
	micro := 1 + rng.IntN(3)
	if rng.IntN(4) == 0 {
		job.Output = Output{Format: thd, CPSlicing: pick(rng, "zigzag", "none"), DocumentMultiple: 2 * job.Topology.CP}
	}
	job.Batch = Batch{
		SequenceLength: 2 * job.Topology.CP * (1 + rng.IntN(2000)),
		Sequences:      job.Topology.DP * micro * job.Topology.VPP * job.Topology.PP * (1 + rng.IntN(3)),
		MicrobatchSize: micro, Packing: rng.IntN(2) == 0,
	}
	if rng.IntN(2) == 0 {
		job.Batch.Outliers = &Outliers{[]int{1 + rng.IntN(job.Batch.SequenceLength)}, 1 + rng.IntN(min(job.Batch.Sequences, maxHeld)), 1 + rng.IntN(99)}
	}
	for i := range 1 + rng.IntN(4) {
		job.Sources = append(job.Sources, randomSource(rng, i, job.Batch.SequenceLength))
	}
	job.Strategy = randomStrategy(rng, job)
	from := int64(0)
	for i := range 1 + rng.IntN(3) {
		job.Mix.Stages = append(job.Mix.Stages, randomStage(rng, job, i, from))
		from += 200
	}
	return job
}

func randomStage(rng *rand.Rand, job *Job, i int, from int64) Stage {
	s := Stage{From: from, Ramp: "none", Weights: map[string]float64{}}
	if i > 0 && rng.IntN(2) == 0 {
		s.Ramp, s.Over = pick(rng, "linear", "cosine"), 1+rng.Int64N(200)
	}
	for _, source := range job.Sources {
		s.Weights[source.Name] = rng.Float64()
	}
	d := decoder{report: newReport("")}
	d.normalise(s.Weights, "")
	return s
}

func randomSource(rng *rand.Rand, i, length int) Source {
	s := Source{
		Name: fmt.Sprintf("%s%d", randomName(rng), i), Format: pick(rng, "", "parquet", "text"),
		Files: []string{randomText(rng)}, ChunkBytes: 1 + rng.Int64N(1<<30),
		Long: Long{pick(rng, "split", "truncate", "drop"), 1 + rng.IntN(length)}, Shuffle: Shuffle{rng.IntN(2) == 0, 1 + rng.IntN(9)},
		BadRecords: BadRecords{pick(rng, "stop", "skip"), rng.IntN(9), 1 + rng.IntN(9), rng.IntN(9)}, Limit: rng.Int64N(9), MaxRecord: rng.Int64N(9), MaxElements: rng.IntN(9),
	}
	for i := range rng.IntN(3) {
		s.Keep = append(s.Keep, fieldpath.Path{{Key: fmt.Sprint(i)}, {Key: randomText(rng)}}.String())
		s.Files = append(s.Files, randomText(rng))
	}
	if rng.IntN(2) == 0 {
		s.Transforms = []Transform{Filter(randomText(rng)), Tokens("a.b[].c"), LossMask("a.b[].d"), &AppendEOD{int32(rng.IntN(9))}}
		return s
	}
	template := strings.NewReplacer("{", "{{", "}", "}}").Replace(randomText(rng))
	var special []string
	if rng.IntN(2) == 0 {
		special = SpecialTokens("o200k_base")
		slices.Sort(special)
	}
	if rng.IntN(3) == 0 {
		chat := &Chat{Messages: "a.b", Tools: pick(rng, "", "t"), Template: pick(rng, "", randomText(rng)), TrainOn: pick(rng, "assistant", "last", "all"), Date: pick(rng, "", "2026-11-03")}
		if rng.IntN(2) == 0 {
			chat.Variables, chat.Loss = []string{"a b=" + strconv.Quote("é: #")}, "weight"
		}
		s.Transforms = []Transform{chat, &Tokenize{Encoding: "bytes"}}
		return s
	}
	s.Transforms = []Transform{Text(template + "{x}"), &Tokenize{Encoding: "o200k_base", Ranks: randomText(rng), SHA256: randomDigest(rng), Special: pick(rng, "", "allow", "refuse"), Allow: special}, Filter(randomText(rng))}
	return s
}

// randomText is a text of characters that YAML, or the spec, treats specially.
func randomText(rng *rand.Rand) string {
	alphabet := []rune("ab \n\t\r\"'\\:#-?,[]{}&*!|>%@`$~.0é\u0085\u2028\ufeff\U0001F600\x00\x7f/=<")
	var b strings.Builder
	b.WriteString(pick(rng, "", "", "null", "true", "- ", "$${", "<<", "a: b #", "---", "1e3"))
	for range 1 + rng.IntN(8) {
		b.WriteRune(alphabet[rng.IntN(len(alphabet))])
	}
	return b.String()
}

// randomName is a text that is valid as a name: printable, with no space around.
func randomName(rng *rand.Rand) string {
	alphabet := []rune("ab\"'\\:#-?,[]{}&*!|>%@`$~.0é=<")
	b := []rune("x (y)")
	for range rng.IntN(8) {
		b = append(b, alphabet[rng.IntN(len(alphabet))])
	}
	rng.Shuffle(len(b)-5, func(i, j int) { b[i], b[j] = b[j], b[i] })
	return strings.TrimSpace(string(b))
}

func pick(rng *rand.Rand, words ...string) string { return words[rng.IntN(len(words))] }

func shuffled(rng *rand.Rand, words []string) []string {
	out := append([]string(nil), words...)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// randomDigest is the SHA-256 of something, or none.
func randomDigest(rng *rand.Rand) string {
	if rng.IntN(2) == 0 {
		return ""
	}
	return fmt.Sprintf("%016x%016x%016x%016x", rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64())
}
