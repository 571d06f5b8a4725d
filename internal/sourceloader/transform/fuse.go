package transform

import "github.com/millrace-data/millrace/jobspec"

// Native steps behind a function run in the task of the function as far as what they give is less than what
// they take: what they leave out, or make smaller, is then never stored between two stages. What is left of them is light,
// and runs in the task of the next function, or takes a slot of its own.

// cdBytes are those of a second of sound as FFmpeg mostly gives it: 44,100 samples of two channels and two bytes.
const cdBytes = 44_100 * 2 * 2

// fused is how many of the steps behind a function run in its task: those up to the last that leaves records out or
// makes them smaller, if no step on the way does more work than a slot of the function's pool is for.
func fused(function jobspec.Transform, behind []jobspec.Transform) (n int) {
	for i, t := range behind {
		switch step := t.(type) {
		case jobspec.Filter:
			n = i + 1
		case jobspec.Text, jobspec.Normalize, *jobspec.Replace:
		default:
			if !shrinks(function, step) {
				return n
			}
			n = i + 1
		}
	}
	return n
}

// shrinks says whether a step makes an array of what FFmpeg decoded that is smaller than that. Of an encoded image or
// sound it would be larger.
func shrinks(function, step jobspec.Transform) bool {
	decoded, ok := function.(*jobspec.Convert)
	if !ok {
		return false
	}
	switch s := step.(type) {
	case *jobspec.Pixels:
		return s.Column == decoded.Column && (s.Resize != "none" && s.Resize != "" || len(s.Crop) > 0)
	case *jobspec.Waveform:
		bytes := 2 * s.Rate
		if s.DType != "int16" {
			bytes *= 2
		}
		if s.Channels == "all" {
			bytes *= 2
		}
		return s.Column == decoded.Column && s.Token == 0 && bytes <= cdBytes
	}
	return false
}

// light says whether a step takes little time beside a call of a function.
func light(t jobspec.Transform) bool {
	switch t.(type) {
	case jobspec.Filter, jobspec.Text, jobspec.Normalize, *jobspec.Replace:
		return true
	}
	return false
}

// behind are the native steps between step i, a function, and the next function, or the end of the chain.
func behind(chain []jobspec.Transform, i int) []jobspec.Transform {
	for n, t := range chain[i+1:] {
		if o := jobspec.OperatorOf(t.Operator()); o == nil || o.Worker {
			return chain[i+1 : i+1+n]
		}
	}
	return chain[i+1:]
}

// fuse plans where the steps behind function i run, when it was compiled.
func (c *compiler) fuse(i int) {
	steps := c.source.Transforms
	native := behind(steps, i)
	n := fused(steps[i], native)
	c.run().fused = n > 0
	if last := i+1+len(native) == len(steps); n > 0 && (last || n < len(native)) {
		c.handOver = i + n
	}
}

// handsOver ends the run behind a function whose task it is, without a function.
func (c *compiler) handsOver(label string) error {
	c.handOver = 0
	c.run().after = &call{Function: &Function{Kind: MapFunction}, label: label, handsOver: true}
	return c.begin(label)
}
