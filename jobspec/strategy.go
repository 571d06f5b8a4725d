package jobspec

import (
	"fmt"
	"slices"
	"strings"
)

// Primitive is one step of the strategy; exactly one field is set. What it means is
// said in package strategy, whose calls have the same names.
type Primitive struct {
	Use         string      // a strategy that was registered in Go
	Graph       string      // text or image: what the primitives after it act on
	Mix         *MixStep    //
	Distribute  *Distribute //
	Cost        *Cost       //
	Balance     *Balance    //
	BroadcastAt []string    // dims
}

// MixStep draws the samples by the job's mix. It may be left out.
type MixStep struct{}

// Distribute says over what rows or images are distributed.
type Distribute struct {
	Axis      string // dp, cp, pp, tp or world
	GroupSize int    // neighbouring buckets of a group; default 1, no groups
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
	case p.Graph != "":
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

// CheckNames has the names of a strategy and of a feedback policy looked up, so that one
// that the program does not know is reported at its place.
func CheckNames(strategy, policy func(name string) error) Option {
	return func(o *options) { o.strategy, o.policy = strategy, policy }
}

// deriveBroadcast takes output.broadcast_at from the strategy.
func (d *decoder) deriveBroadcast(job *Job) {
	if dims := job.broadcastOfRows(); len(dims) == 1 && !d.given("output.broadcast_at") && d.sound("strategy") {
		job.Output.BroadcastAt = dims[0]
	}
}

// broadcastOfRows returns what the strategy says of the broadcast of rows.
func (j *Job) broadcastOfRows() []string {
	graph := textGraph
	for _, p := range j.Strategy {
		if p.Graph != "" {
			graph = p.Graph
		}
		if p.BroadcastAt != nil && graph == textGraph {
			return p.BroadcastAt
		}
	}
	return nil
}

// strategyIdentity is what of the strategy decides about the contents of rows: a
// strategy that is known by its name only, or the cost that rows are evened by.
func (j *Job) strategyIdentity() string {
	graph, cost := textGraph, ""
	for _, p := range j.Strategy {
		switch {
		case p.Use != "":
			return "strategy: " + quoteYAML(p.Use) + "\n"
		case p.Graph != "":
			graph = p.Graph
		case graph != textGraph:
		case p.Cost != nil:
			cost = p.Cost.Text()
		case p.Balance != nil && !p.Balance.KeepOrder && p.Balance.Level != "inter":
			return "strategy:\n  even: " + quoteYAML(cost) + "\n"
		}
	}
	return ""
}

// textGraph is the graph that a strategy begins with.
const textGraph = "text"

// drawing is what is known of one graph of the strategy while it is checked.
type drawing struct {
	graph string
	seen  map[string]string // kind of primitive -> field
}

func (c *checker) strategy() {
	if !c.sound("strategy") {
		return
	}
	g := &drawing{textGraph, map[string]string{}}
	var graphs []string // that something acts on
	for i, p := range c.job.Strategy {
		kind := p.kind()
		at := childField(itemField("strategy", i), kind)
		switch {
		case kind == "use" && len(c.job.Strategy) > 1:
			c.error(at, quote(p.Use)+" is a whole strategy and stands beside other entries", "keep it alone, or write out what it does")
		case kind == "use" && c.named != nil:
			c.unknown(c.named(p.Use), at)
		case kind == "graph" && slices.Contains(graphs, p.Graph):
			c.error(at, "the graph of "+p.Graph+" began before", "write what acts on it in one place")
		case kind == "graph":
			g = &drawing{p.Graph, map[string]string{}}
		case g.seen[kind] != "":
			c.error(at, "is the second "+kind+" of the graph of "+g.graph, "a graph has one: keep one of the two")
		default:
			c.primitive(g, &p, kind, at)
		}
		g.seen[kind] = at
		if kind != "graph" {
			graphs = append(graphs, g.graph)
		}
	}
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
	case "balance":
		c.balance(g, p.Balance, at)
	case "broadcast_at":
		c.broadcast(g, p.BroadcastAt, at)
	}
}

func (c *checker) distribute(g *drawing, d *Distribute, at string) {
	if rows := c.job.rowAxis(); g.graph == textGraph && d.Axis != rows {
		valid := "valid is dp; after `graph: image` any axis"
		if rows == "cp" {
			valid = "valid is cp: with batch.context_split all dp * cp ranks are one pool"
		}
		c.error(at, "rows are distributed at "+rows+", not at "+d.Axis, valid)
		return
	}
	if c.job.Batch.ContextSplit > 0 && d.GroupSize > 1 {
		c.error(at+".group_size", fmt.Sprintf("%d is given with batch.context_split, whose rows are placed over all ranks at once", d.GroupSize), "valid is 1")
		return
	}
	t := c.job.Topology
	if !c.sound("topology") {
		return
	}
	if out := c.job.Output.BroadcastAt; out == "tp" && (d.Axis == "tp" || d.Axis == "world") && t.TP > 1 && c.sound("output") {
		c.error(at, "images at "+d.Axis+" go to ranks that fetch nothing, as output.broadcast_at is tp", "valid are dp, cp and pp")
		return
	}
	buckets := map[string]int{"dp": t.DP, "cp": t.DP * t.CP, "pp": t.DP * t.CP * t.PP}[d.Axis]
	if buckets == 0 {
		buckets = t.DP * t.CP * t.PP * t.TP
	}
	if buckets%d.GroupSize != 0 {
		c.error(at+".group_size", fmt.Sprintf("%d does not divide the %d buckets at %s", d.GroupSize, buckets, d.Axis), "valid are 1 for no groups and the divisors of "+fmt.Sprint(buckets))
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
	intra := !b.KeepOrder && b.Level != "inter"
	split := c.job.Batch.ContextSplit > 0
	switch {
	case split && intra:
		c.error(at+".level", b.Level+" moves samples between rows of one width, and batch.context_split makes several", "valid is inter")
	case split && b.Method != "auto":
		c.error(at+".method", b.Method+" balances rows of one width, and batch.context_split makes several", "valid is auto")
	case g.seen["distribute"] == "":
		c.error(at, "there is no distribute before it", "write distribute before it")
	case g.seen["cost"] == "" && !b.KeepOrder:
		c.error(at, "there is no cost before it", "write cost before it")
	case intra && g.graph != textGraph:
		c.error(at+".level", b.Level+" moves samples between rows, and images have none", "valid is inter")
	case intra && !c.job.Batch.Packing && c.sound("batch.packing"):
		c.error(at+".level", b.Level+" moves samples between rows, and without packing each has a row of its own", "valid is inter")
	}
}

func (c *checker) broadcast(g *drawing, dims []string, at string) {
	said := c.job.Output.BroadcastAt
	switch {
	case g.seen["distribute"] == "":
		c.error(at, "there is no distribute before it", "write distribute before it")
	case g.graph != textGraph || !c.sound("output"):
	case len(dims) != 1 || dims[0] != said:
		c.error(at, fmt.Sprintf("is %s, and output.broadcast_at is %s", strings.Join(dims, ", "), quote(said)), "keep one of the two")
	}
}
