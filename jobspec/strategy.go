package jobspec

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Primitive is one step of the strategy; exactly one field is set. What it means is
// said in package strategy, whose calls have the same names.
type Primitive struct {
	Use         string      // a strategy that was registered in Go
	Graph       *Graph      // what the primitives after it act on
	Mix         *MixStep    //
	Distribute  *Distribute //
	Cost        *Cost       //
	Balance     *Balance    //
	BroadcastAt []string    // dims
}

// Graph is the rows or the images of the step, or the samples of some sources among them.
type Graph struct {
	Of      string   // text or image
	Sources []string // nil: all that no other graph of the kind names
}

// title names the graph in findings: text, or text of web, code.
func (g *Graph) title() string {
	if g.Sources == nil {
		return g.Of
	}
	return g.Of + " of " + strings.Join(g.Sources, ", ")
}

// isRows reports whether it is the graph that says where rows go.
func (g *Graph) isRows() bool { return g.Of == textGraph && g.Sources == nil }

// Primitives yields the primitives of the strategy, but for those that begin a graph, each
// with the graph that it acts on.
func (j *Job) Primitives() iter.Seq2[*Graph, *Primitive] {
	return func(yield func(*Graph, *Primitive) bool) {
		graph := &Graph{Of: textGraph}
		for i := range j.Strategy {
			p := &j.Strategy[i]
			if p.Graph != nil {
				graph = p.Graph
			} else if !yield(graph, p) {
				return
			}
		}
	}
}

// MixStep draws the samples by the job's mix. It may be left out.
type MixStep struct{}

// Distribute says over what rows or images are distributed.
type Distribute struct {
	Axis      string // dp, cp, pp, tp or world
	GroupSize int    // neighbouring buckets of a group; default 1, no groups
	LastGroup string // equal (default), or smaller: it has the buckets that are left
}

// Cost is the cost of a sample or an image: a model of package cost with its
// parameters, or an expression. Parameters that are not given are 0.
type Cost struct {
	Model, Expression         string
	A, B                      int64  // of linear and quadratic
	Of                        string // what linear and quadratic count
	Layers, Hidden, Active    int64  // of transformer and encoder
	BytesPerToken, FixedBytes int64  // of memory
}

// Balance says how costs are balanced.
type Balance struct {
	Method    string // auto (default), lpt or kk
	Level     string // inter (default), intra or interleaved
	RowMethod string // at intra and interleaved: auto (default), or one that the program has
	KeepOrder bool   // balance nothing; default false
}

// parameters returns those that are given, as name=value.
func (c *Cost) parameters() []string {
	var given []string
	for _, p := range []struct {
		name  string
		value int64
	}{
		{"a", c.A}, {"b", c.B}, {"layers", c.Layers}, {"hidden", c.Hidden}, {"active", c.Active},
		{"bytes_per_token", c.BytesPerToken}, {"fixed_bytes", c.FixedBytes},
	} {
		if p.value != 0 {
			given = append(given, fmt.Sprintf("%s=%d", p.name, p.value))
		}
	}
	if c.Of != "" {
		given = append(given, "of="+c.Of)
	}
	return given
}

// Text returns the cost as package cost reads it: an expression, or a model
// such as quadratic(a=24576, b=1).
func (c *Cost) Text() string {
	if c.Expression != "" {
		return c.Expression
	}
	if given := c.parameters(); given != nil {
		return c.Model + "(" + strings.Join(given, ", ") + ")"
	}
	return c.Model
}

// kind returns the key of the field that is set.
func (p *Primitive) kind() string {
	switch {
	case p.Use != "":
		return "use"
	case p.Graph != nil:
		return "graph"
	case p.Mix != nil:
		return "mix"
	case p.Distribute != nil:
		return "distribute"
	case p.Cost != nil:
		return "cost"
	case p.Balance != nil:
		return "balance"
	default:
		return "broadcast_at"
	}
}

// CheckCost has every cost of the strategy read by check, so that what is wrong with
// one is reported at its place.
func CheckCost(check func(text string) error) Option {
	return func(o *options) { o.cost = check }
}

// CheckNames has the names of a strategy, of a row method and of a feedback policy looked up, so
// that one that the program does not know is reported at its place.
func CheckNames(strategy, rowMethod, policy func(name string) error) Option {
	return func(o *options) { o.strategy, o.rowMethod, o.policy = strategy, rowMethod, policy }
}

// deriveBroadcast takes output.broadcast_at from the strategy.
func (d *decoder) deriveBroadcast(job *Job) {
	if dims := job.broadcastOfRows(); len(dims) == 1 && !d.given("output.broadcast_at") && d.sound("strategy") {
		job.Output.BroadcastAt = dims[0]
	}
}

// broadcastOfRows returns what the strategy says of the broadcast of rows.
func (j *Job) broadcastOfRows() []string {
	for graph, p := range j.Primitives() {
		if p.BroadcastAt != nil && graph.isRows() {
			return p.BroadcastAt
		}
	}
	return nil
}

// strategyIdentity is what of the strategy decides about the contents of rows: a
// strategy that is known by its name only, or what rows are evened by: costs, and the name
// of a method.
func (j *Job) strategyIdentity() string {
	even, text, parts := false, "", ""
	for graph, p := range j.Primitives() {
		switch {
		case p.Use != "":
			return "strategy: " + quoteYAML(p.Use) + "\n"
		case graph.Of != textGraph:
		case p.Cost != nil && graph.isRows():
			text = "strategy:\n  even: " + quoteYAML(p.Cost.Text()) + "\n"
		case p.Cost != nil:
			for _, name := range slices.Sorted(slices.Values(graph.Sources)) {
				parts += "  of " + quoteYAML(name) + ": " + quoteYAML(p.Cost.Text()) + "\n"
			}
		case p.Balance != nil && p.Balance.Evens():
			if even = true; p.Balance.RowMethod != autoMethod {
				text += "  rows: " + quoteYAML(p.Balance.RowMethod) + "\n"
			}
		}
	}
	if !even {
		return ""
	}
	if j.Batch.ContextSplit > 0 {
		parts += "  widths: 3\n" // the third version of balance.WideEvener
	}
	return text + parts
}

// Evens reports whether samples are moved between rows.
func (b *Balance) Evens() bool { return !b.KeepOrder && b.Level != "inter" }

// autoMethod is the method that is built in.
const autoMethod = "auto"

// textGraph is the graph that a strategy begins with.
const textGraph = "text"

// drawing is what is known of one graph of the strategy while it is checked.
type drawing struct {
	*Graph
	seen map[string]string // kind of primitive -> field
}

func (c *checker) strategy() {
	if !c.sound("strategy") {
		return
	}
	g := &drawing{&Graph{Of: textGraph}, map[string]string{}}
	var graphs []*Graph // that something acts on
	for i, p := range c.job.Strategy {
		kind := p.kind()
		at := childField(itemField("strategy", i), kind)
		switch {
		case kind == "use" && !c.job.usesAlone():
			c.error(at, quote(p.Use)+" is a whole strategy and stands beside other entries", "keep it alone, or with `distribute: cp` behind it, which says where its rows go; or write out what it does")
		case kind == "use" && c.named != nil:
			c.unknown(c.named(p.Use), at)
		case kind == "graph":
			c.graph(p.Graph, graphs, at)
			g = &drawing{p.Graph, map[string]string{}}
		case g.seen[kind] != "":
			c.error(at, "is the second "+kind+" of the graph of "+g.title(), "a graph has one: keep one of the two")
		default:
			c.primitive(g, &p, kind, at)
		}
		g.seen[kind] = at
		if kind != "graph" && !slices.Contains(graphs, g.Graph) {
			graphs = append(graphs, g.Graph)
		}
	}
}

// graph checks that a graph is none of those before, and has sources of its own.
func (c *checker) graph(g *Graph, before []*Graph, at string) {
	for _, other := range before {
		if other.Of == g.Of && slices.Equal(other.Sources, g.Sources) {
			c.error(at, "the graph of "+g.title()+" began before", "write what acts on it in one place")
			return
		}
	}
	var valid []string
	for i := range c.job.Sources {
		valid = append(valid, c.job.Sources[i].Name)
	}
	for i, name := range g.Sources {
		at := itemField(at+".sources", i)
		taken := slices.Contains(g.Sources[:i], name)
		for _, other := range before {
			taken = taken || other.Of == g.Of && slices.Contains(other.Sources, name)
		}
		switch {
		case !c.namesSound():
		case !slices.Contains(valid, name):
			c.error(at, "there is no source "+quote(name), "valid are "+strings.Join(valid, ", "))
		case taken:
			c.error(at, quote(name)+" is in a graph of "+g.Of+" already", "name each source once")
		}
	}
}

// usesAlone reports whether nothing stands beside a registered strategy but where rows go, if
// that is at cp.
func (j *Job) usesAlone() bool {
	beside := j.Strategy[1:]
	return j.Strategy[0].Use != "" && (len(beside) == 0 || len(beside) == 1 && beside[0].Distribute != nil && beside[0].Distribute.Axis == "cp" && beside[0].Distribute.GroupSize == 1)
}

// unknown reports a name that is not known.
func (c *checker) unknown(err error, at string) {
	if err != nil {
		c.error(at, strings.TrimPrefix(err.Error(), "strategy: "), "")
	}
}

// feedback looks up the policy of the mix.
func (c *checker) feedback() {
	if c.policy != nil && c.sound("mix.feedback") {
		c.unknown(c.policy(c.job.Mix.Feedback.Policy), "mix.feedback.policy")
	}
}

func (c *checker) primitive(g *drawing, p *Primitive, kind, at string) {
	switch kind {
	case "distribute":
		c.distribute(g, p.Distribute, at)
	case "cost":
		c.costs(p.Cost, at)
		if g.Of == textGraph && g.Sources != nil && !c.job.rowsHaveCost() {
			c.error(at, "is what samples of some sources cost, and the graph of text says nothing of the others", "write a cost before `graph`")
		}
	case "balance":
		c.balance(g, p.Balance, at)
	case "broadcast_at":
		c.broadcast(g, p.BroadcastAt, at)
	}
}

// rowsHaveCost reports whether the graph of text has a cost.
func (j *Job) rowsHaveCost() bool {
	for graph, p := range j.Primitives() {
		if graph.isRows() && p.Cost != nil {
			return true
		}
	}
	return false
}

// oneAxis checks that the images of a graph are distributed at the axis of those before it.
func (c *checker) oneAxis(g *Graph, axis, at string) {
	for graph, p := range c.job.Primitives() {
		if graph == g {
			return
		}
		if graph.Of != textGraph && p.Distribute != nil && p.Distribute.Axis != axis {
			c.error(at, "images are at "+p.Distribute.Axis+" and at "+axis, "take one axis for the images of all sources")
			return
		}
	}
}

func (c *checker) distribute(g *drawing, d *Distribute, at string) {
	split := c.job.Batch.ContextSplit > 0
	switch {
	case g.Of == textGraph && g.Sources != nil:
		c.error(at, "rows have samples of all sources", "write it before `graph`, where it is about all rows")
		return
	case g.Of != textGraph:
		c.oneAxis(g.Graph, d.Axis, at)
	case d.Axis == "cp" && split:
	case split:
		c.error(at, "rows are distributed at cp, not at "+d.Axis, "valid is cp: with batch.context_split all dp * cp ranks are one pool")
		return
	case d.Axis == "cp":
		c.pool(at)
	case d.Axis != "dp":
		c.error(at, "rows are distributed at dp or cp, not at "+d.Axis, "valid are dp, where the cp ranks of a dp index share a row, and cp, where each has rows of its own; after `graph: image` any axis")
		return
	}
	if split && d.GroupSize > 1 {
		c.error(at+".group_size", fmt.Sprintf("%d is given with batch.context_split, whose rows are placed over all ranks at once", d.GroupSize), "valid is 1")
		return
	}
	t := c.job.Topology
	if !c.sound("topology") {
		return
	}
	if out := c.job.Output.BroadcastAt; out == "tp" && (d.Axis == "tp" || d.Axis == "world") && t.TP > 1 && c.sound("output.broadcast_at") {
		c.error(at, "images at "+d.Axis+" go to ranks that fetch nothing, as output.broadcast_at is tp", "valid are dp, cp and pp")
		return
	}
	buckets := map[string]int{"dp": t.DP, "cp": t.DP * t.CP, "pp": t.DP * t.CP * t.PP}[d.Axis]
	if buckets == 0 {
		buckets = t.DP * t.CP * t.PP * t.TP
	}
	if buckets%d.GroupSize != 0 && d.LastGroup != "smaller" {
		c.error(at+".group_size", fmt.Sprintf("%d does not divide the %d buckets at %s", d.GroupSize, buckets, d.Axis), "valid are 1 for no groups and the divisors of "+fmt.Sprint(buckets)+"; with last_group: smaller the last group has those that are left")
	}
}

func (c *checker) costs(cost *Cost, at string) {
	given := cost.parameters()
	switch {
	case cost.Model == "" && cost.Expression == "":
		c.error(at, "has neither model nor expression", "valid is such as quadratic, or {expression: tokens * tokens}")
	case cost.Model != "" && cost.Expression != "":
		c.error(at, "has a model and an expression", "keep one of the two")
	case cost.Expression != "" && given != nil:
		c.error(at, "has an expression and "+given[0]+", and an expression takes no parameters", "write the value into the expression")
	case c.cost == nil:
	default:
		if err := c.cost(cost.Text()); err != nil {
			c.error(at, strings.TrimPrefix(err.Error(), "cost "), "")
		}
	}
}

func (c *checker) balance(g *drawing, b *Balance, at string) {
	intra := b.Evens()
	split := c.job.Batch.ContextSplit > 0
	switch {
	case split && b.Method != "auto":
		c.error(at+".method", b.Method+" balances rows of one width, and batch.context_split makes several", "valid is auto")
	case split && b.RowMethod != autoMethod:
		c.error(at+".row_method", b.RowMethod+" moves samples between rows of one width, and batch.context_split makes several", "valid is auto")
	case g.Of == textGraph && g.Sources != nil:
		c.error(at, "rows have samples of all sources", "write it before `graph`, where it is about all rows")
	case b.RowMethod != autoMethod && !intra:
		c.error(at+".row_method", b.RowMethod+" moves samples between rows, which level "+b.Level+" does not", "valid levels are intra and interleaved")
	case b.RowMethod != autoMethod && c.rowMethod != nil && c.rowMethod(b.RowMethod) != nil:
		c.unknown(c.rowMethod(b.RowMethod), at+".row_method")
	case g.seen["distribute"] == "":
		c.error(at, "there is no distribute before it", "write distribute before it")
	case g.seen["cost"] == "" && !b.KeepOrder:
		c.error(at, "there is no cost before it", "write cost before it")
	case intra && g.Of != textGraph:
		c.error(at+".level", b.Level+" moves samples between rows, and images have none", "valid is inter")
	case intra && !c.job.Batch.Packing && c.sound("batch.packing"):
		c.error(at+".level", b.Level+" moves samples between rows, and without packing each has a row of its own", "valid is inter")
	}
}

// fill checks that something makes use of the room that batch.fill leaves.
func (c *checker) fill() {
	if !c.sound("batch.fill", "batch.packing", "strategy") {
		return
	}
	evens := c.job.strategyIdentity()
	switch {
	case c.job.Batch.Fill == 0 && strings.Contains(evens, "even:"):
		c.warn("batch", "has no fill: rows are as full as they get, which leaves little room to make them cost alike", "`millrace plan` says which fill makes steps fastest, and which tokens it costs")
		return
	case c.job.Batch.Fill == 0:
		return
	}
	if evens == "" {
		c.error("batch.fill", "leaves room in rows, and nothing makes rows cost alike", "add a balance at level interleaved or intra, or remove fill")
	}
	if !c.job.Batch.Packing {
		c.error("batch.fill", "is given without packing, where each row has one sample", "remove fill")
	}
}

func (c *checker) broadcast(g *drawing, dims []string, at string) {
	said := c.job.Output.BroadcastAt
	switch {
	case g.Of == textGraph && g.Sources != nil:
		c.error(at, "rows have samples of all sources", "write it before `graph`, where it is about all rows")
	case g.seen["distribute"] == "":
		c.error(at, "there is no distribute before it", "write distribute before it")
	case g.Of != textGraph || !c.sound("output.broadcast_at"):
	case len(dims) != 1 || dims[0] != said:
		c.error(at, fmt.Sprintf("is %s, and output.broadcast_at is %s", strings.Join(dims, ", "), quote(said)), "keep one of the two")
	}
}
