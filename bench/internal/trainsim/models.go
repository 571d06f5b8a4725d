package trainsim

// Transformer is a stack of equal layers, by what decides its cost.
type Transformer struct {
	Name   string
	Layers int64
	Hidden int64
	Active int64 // parameters of a layer that a token meets, in units of Hidden²
	Causal bool  // a token attends to those before it only
}

// FLOPs returns the cost of the forward pass of one sub-sequence of n tokens.
func (t *Transformer) FLOPs(n int64) int64 {
	attention := int64(4)
	if t.Causal {
		attention = 2
	}
	return t.Layers * (2*t.Active*t.Hidden*t.Hidden*n + attention*t.Hidden*n*n)
}

// Pair is a model: an encoder of images and the backbone that reads them.
type Pair struct {
	Backbone Transformer
	Encoder  Transformer
}

// Name returns both names, as "Llama-12B+ViT-1B".
func (p *Pair) Name() string { return p.Backbone.Name + "+" + p.Encoder.Name }

// The models of the paper's evaluation. It gives layers and hidden sizes; the
// active parameters of the two mixtures of experts are estimates.
var (
	Backbones = []Transformer{
		{Name: "Llama-12B", Layers: 45, Hidden: 4608, Active: 12, Causal: true},
		{Name: "tMoE-25B", Layers: 42, Hidden: 2048, Active: 20, Causal: true},
		{Name: "Mixtral-8x7B", Layers: 32, Hidden: 4096, Active: 25, Causal: true},
	}
	Encoders = []Transformer{
		{Name: "ViT-1B", Layers: 39, Hidden: 1408, Active: 12},
		{Name: "ViT-2B", Layers: 48, Hidden: 1664, Active: 12},
	}
)

// Pairs returns every backbone with every encoder: backbone by backbone, the
// encoders of one from small to large.
func Pairs() []Pair {
	var pairs []Pair
	for _, b := range Backbones {
		for _, e := range Encoders {
			pairs = append(pairs, Pair{Backbone: b, Encoder: e})
		}
	}
	return pairs
}
