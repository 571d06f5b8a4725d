package jobspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// rule is a check between fields. The reference page lists the docs.
type rule struct {
	doc   string
	check func(*checker)
}

// checker applies the rules to a decoded job.
type checker struct {
	*report
	job       *Job
	filter    func(string) error // nil: filters are only checked not to be empty
	cost      func(string) error // nil: costs are not read
	named     func(string) error // nil: names of strategies are not looked up
	rowMethod func(string) error // nil: names of row methods are not looked up
	policy    func(string) error // nil: names of policies are not looked up
	image     *Image             // the first of the job
}

var rules = []rule{
	{"Names of sources are unique, and names have printable characters only, no space at either end, and at most 200 bytes.", (*checker).names},
	{"A chain has a step that makes tokens, `tokenize` or `tokens`. [operators.md](operators.md) says what each step needs, and where it may stand.", (*checker).chains},
	{"Fields and columns are paths: dots between names, `[]` for each element of a list, also of lists in lists, and a backslash before a `.`, `[`, `}` or `\\` that is part of a name.", (*checker).steps},
	{"`keep` names no column twice.", (*checker).kept},
	{"`long.max` is at most `batch.sequence_length`, times `batch.context_split` if that is given.", (*checker).long},
	{"`batch.context_split` is a power of two that divides `topology.dp` * `topology.cp`, and this product divides `batch.sequences`. It needs `format: megatron-thd`, `packing`, `cp_slicing: zigzag`, a `microbatch_size` of 1 and, in `topology.order`, `cp` before `dp`; images, and methods and groups of a balance other than the default have no rows of several widths.", (*checker).contextSplit},
	{"`batch.fill` needs `packing`, and in `strategy` a `balance` of rows at level `intra` or `interleaved`, or `use`.", (*checker).fill},
	{"The first stage starts at step 0, later ones start later than the one before. A ramp has `over`, `over` has a ramp; a ramp is over when the next stage starts, and the first stage has none.", (*checker).stages},
	{"Weights name sources of the spec, are finite and not negative, and at least one of a stage is above 0. Weights that do not sum to 1 (off by more than 1e-6) are normalised with a warning. A source that no stage gives a weight is a warning.", (*checker).weights},
	{"With `grain: epoch`, a source that has a weight in any stage has one in each but the last: an epoch is over when all of them were read through.", (*checker).epochStages},
	{"`mix.feedback.policy` is built in, or registered by the program that runs the job.", (*checker).feedback},
	{"`exhausted: renormalize` without `epochs` is a warning: no source is ever exhausted. So is `draw: random` with `epochs` and `exhausted: stop`, by which the last steps may have few samples: that a source is at its end shows when chance draws it.", (*checker).exhausted},
	{"`batch.sequences` is a multiple of `topology.dp` * `batch.microbatch_size`, so that every DP rank has the same number of microbatches. With `vpp` above 1 that number is a multiple of `pp`, which Megatron's interleaved schedule needs.", (*checker).microbatches},
	{"`batch.outliers.above` rises, has at most 16 lengths and none above `batch.sequence_length`; `together` is at most `batch.sequences`, and times the number of lengths at most 128, which bounds what a resume token holds.", (*checker).outliers},
	{"With `cp` above 1, `batch.sequence_length` is a multiple of 2 * `cp` (`cp_slicing: zigzag`) or of `cp` (`contiguous`).", (*checker).slices},
	{"With `format: megatron-thd`, `document_multiple` is a multiple of 2 * `cp` (`cp` above 1) and `batch.sequence_length` one of `document_multiple`; `pad_id` is 0, and `cp_slicing` is not `contiguous`. Other formats have no `document_multiple`. With `format: torchtitan` and `cp` above 1, `cp_slicing` is `none`: torchtitan cuts the batch itself.", (*checker).output},
	{"`topology.dp` * `cp` * `pp` * `tp` is at most 16777216, the ranks of a mesh.", (*checker).world},
	{"In `strategy`, `use` stands alone. Each graph has each other primitive at most once, `balance` after `distribute` and `cost`, `broadcast_at` after `distribute`. Rows are distributed at `dp`, images not at an axis with `tp` in it if rows are broadcast there; `group_size` divides the consumers. Levels `intra` and `interleaved` are for rows with `packing`. `broadcast_at` and `output.broadcast_at` agree. Costs can be read, and the program that runs the job knows what `use` names.", (*checker).strategy},
	{"`topology.order` names each axis of ranks once. `topology.ep` divides `dp` * `cp`.", (*checker).order},
}

func (c *checker) names() {
	c.name("name", c.job.Name)
	first := map[string]int{}
	for i, s := range c.job.Sources {
		at := itemField("sources", i) + ".name"
		if !c.name(at, s.Name) {
			continue
		}
		if k, ok := first[s.Name]; ok {
			c.error(at, fmt.Sprintf("%s is also the name of sources[%d]", quote(s.Name), k), "give each source a name of its own")
			continue
		}
		first[s.Name] = i
	}
}

const maxNameBytes = 200 // fits a file name and a metric label with room to spare

func (c *checker) name(at, name string) bool {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	const valid = "valid are printable characters without a space at either end, such as web or \"Wikipedia (en)\""
	switch {
	case !c.sound(at):
	case len(name) > maxNameBytes:
		c.error(at, fmt.Sprintf("the name has %d bytes", len(name)), fmt.Sprintf("valid are at most %d", maxNameBytes))
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unprintable):
		c.error(at, fmt.Sprintf("the name %s has unprintable characters", quote(name)), valid)
	case strings.TrimSpace(name) != name:
		c.error(at, fmt.Sprintf("the name %s begins or ends with a space", quote(name)), valid)
	default:
		return true
	}
	return false
}

func (c *checker) long() {
	length, words := c.job.LongestSample(), "batch.sequence_length"
	if c.job.Batch.ContextSplit > 0 {
		words = "batch.sequence_length * context_split ="
	}
	for i, s := range c.job.Sources {
		at := itemField("sources", i) + ".long.max"
		if c.sound(at, "batch.sequence_length", "batch.context_split") && s.Long.Max > length {
			c.error(at, fmt.Sprintf("%d is more than %s %d", s.Long.Max, words, length), fmt.Sprintf("valid is 1 to %d", length))
		}
	}
}

func (c *checker) stages() {
	for i, s := range c.job.Mix.Stages {
		at := itemField("mix.stages", i)
		c.stageStart(i, at)
		if !c.sound(at+".ramp", at+".over") {
			continue
		}
		switch {
		case s.Ramp == "none" && s.Over > 0:
			c.error(at+".over", "is given without a ramp", "add ramp: linear or ramp: cosine, or remove over")
		case s.Ramp != "none" && s.Over == 0:
			c.error(at+".over", fmt.Sprintf("is missing with ramp: %s", s.Ramp), "give the number of steps that the ramp takes, 1 or more")
		case s.Ramp != "none" && i == 0:
			c.error(at+".ramp", "the first stage has no stage before it to ramp from", "valid is none")
		}
	}
}

// stageStart compares a stage's start with the stage before.
func (c *checker) stageStart(i int, at string) {
	stages := c.job.Mix.Stages
	from := stages[i].From
	if i == 0 {
		if from != 0 {
			c.error(at+".from", fmt.Sprintf("the first stage starts at step %d", from), "valid is 0")
		}
		return
	}
	before, beforeAt := stages[i-1], itemField("mix.stages", i-1)
	switch {
	case !c.sound(at+".from", beforeAt+".from", beforeAt+".over"):
	case from <= before.From:
		c.error(at+".from", fmt.Sprintf("step %d is not after the stage before, which starts at step %d", from, before.From), fmt.Sprintf("valid is %d or more", before.From+1))
	case before.From+before.Over > from:
		c.error(at+".from", fmt.Sprintf("step %d is inside the ramp of the stage before, which takes until step %d", from, before.From+before.Over), fmt.Sprintf("valid is %d or more", before.From+before.Over))
	}
}

func (c *checker) weights() {
	if !c.namesSound() {
		return
	}
	var names []string
	used := map[string]bool{}
	for _, s := range c.job.Sources {
		names = append(names, s.Name)
		used[s.Name] = false
	}
	for i, stage := range c.job.Mix.Stages {
		at := c.stageWeights(i)
		for _, name := range slices.Sorted(maps.Keys(stage.Weights)) {
			if _, ok := used[name]; !ok {
				c.error(childField(at, name), fmt.Sprintf("there is no source %s", quote(name)), oneOf(name, names))
			} else if stage.Weights[name] > 0 {
				used[name] = true
			}
		}
	}
	if !c.sound("mix") {
		return
	}
	for i, name := range names {
		if !used[name] {
			c.warn(itemField("sources", i), fmt.Sprintf("%s has weight 0 in every stage: it is never read", quote(name)), "give it a weight or remove the source")
		}
	}
}

// epochStages refuses a source that keeps the count of epochs where it is, so that later stages never begin.
func (c *checker) epochStages() {
	m := c.job.Mix
	if m.Grain != "epoch" || !c.namesSound() || !c.sound("mix") {
		return
	}
	for _, s := range c.job.Sources {
		if !slices.ContainsFunc(m.Stages, func(st Stage) bool { return st.Weights[s.Name] > 0 }) {
			continue
		}
		for i, stage := range m.Stages[:len(m.Stages)-1] {
			if stage.Weights[s.Name] == 0 {
				c.error(itemField("mix.stages", i)+".weights", fmt.Sprintf("%s has no weight in a stage before the last, so that with grain: epoch no epoch of all sources is ever over, and the next stage never begins", quote(s.Name)),
					"give it a small one, or count steps, with grain: step")
			}
		}
	}
}

func (c *checker) namesSound() bool {
	for i := range c.job.Sources {
		if !c.sound(itemField("sources", i) + ".name") {
			return false
		}
	}
	return c.job.Sources != nil
}

func (c *checker) exhausted() {
	m := c.job.Mix
	if c.sound("mix.exhausted", "mix.epochs") && m.Exhausted == "renormalize" && m.Epochs == 0 {
		c.warn("mix.exhausted", "has no effect without epochs: sources start again by themselves", "give epochs, or remove exhausted")
	}
	several := slices.ContainsFunc(m.Stages, func(s Stage) bool {
		used := 0
		for _, weight := range s.Weights {
			if weight > 0 {
				used++
			}
		}
		return used > 1
	})
	if c.sound("mix", "mix.draw", "mix.exhausted", "mix.epochs") && m.Draw == "random" && m.Exhausted == "stop" && m.Epochs > 0 && several {
		c.warn("mix.draw", "with epochs, that a source is at its end shows when chance draws it: steps until then may have few samples", "end the training where `millrace plan --every` shows that, or write draw: deficit or exhausted: renormalize")
	}
}

func (c *checker) microbatches() {
	b, t := c.job.Batch, c.job.Topology
	if !c.sound("batch.sequences", "batch.tokens", "batch.microbatch_size", "topology.dp") || b.Sequences == 0 || c.job.Pool() {
		return
	}
	rows := int64(t.DP) * int64(b.MicrobatchSize)
	if int64(b.Sequences)%rows != 0 {
		c.error("batch.sequences", fmt.Sprintf("%d is not a multiple of dp %d * microbatch_size %d", b.Sequences, t.DP, b.MicrobatchSize), near(int64(b.Sequences), rows))
		return
	}
	count := int64(b.Sequences) / rows
	switch {
	case t.VPP == 1 || !c.sound("topology"):
	case count%int64(t.PP) != 0:
		c.error("batch.sequences", fmt.Sprintf("%d gives each DP rank %d microbatches, not a multiple of pp %d, which the interleaved schedule of vpp %d needs", b.Sequences, count, t.PP, t.VPP), near(int64(b.Sequences), rows*int64(t.PP)))
	}
}

func (c *checker) slices() {
	cp, length, slicing := c.job.Topology.CP, c.job.Batch.SequenceLength, c.job.Output.CPSlicing
	if cp == 1 || c.job.Output.Format == thd || !c.sound("topology.cp", "batch.sequence_length", "output.cp_slicing") {
		return
	}
	parts, word := map[string]int{"zigzag": 2 * cp, "contiguous": cp, "none": 1}[slicing], "cp"
	if slicing == "zigzag" {
		word = "2 * cp"
	}
	if length%parts != 0 {
		c.error("batch.sequence_length", fmt.Sprintf("%d is not a multiple of %s = %d, which cp_slicing: %s needs", length, word, parts, slicing), near(int64(length), int64(parts)))
	}
}

func (c *checker) world() {
	t, ranks := c.job.Topology, int64(1)
	for _, n := range []int{t.DP, t.CP, t.PP, t.TP} { // each was checked: no product overflows
		if ranks *= int64(n); ranks > maxWorld {
			c.error("topology", fmt.Sprintf("dp %d * cp %d * pp %d * tp %d are more ranks than a mesh may have", t.DP, t.CP, t.PP, t.TP), fmt.Sprintf("valid are at most %d", maxWorld))
			return
		}
	}
}

func (c *checker) order() {
	const at = "topology.order"
	if t := c.job.Topology; c.sound("topology.dp", "topology.cp", "topology.ep") && t.DP*t.CP%t.EP != 0 {
		c.error("topology.ep", fmt.Sprintf("%d does not divide dp %d * cp %d, the ranks that experts are laid over", t.EP, t.DP, t.CP), fmt.Sprintf("valid are the divisors of %d", t.DP*t.CP))
	}
	if !c.sound(at) {
		return
	}
	valid := "valid is each of " + strings.Join(axes, ", ") + " once"
	for _, axis := range topologyObject.field("order").enum {
		n := 0
		for i, a := range c.job.Topology.Order {
			if a == axis {
				if n++; n == 2 {
					c.error(itemField(at, i), fmt.Sprintf("%s is named twice", axis), valid)
				}
			}
		}
		if n == 0 && slices.Contains(axes, axis) {
			c.error(at, fmt.Sprintf("the axis %s is missing", axis), valid)
		}
	}
}
