package trainsim

// OneFOneB returns when the last of len(forward) microbatches leaves a pipeline of
// equal stages that runs them in 1F1B order. forward[j] is the time of microbatch
// j's forward pass in one stage; its backward pass takes twice that.
//
// Stage s begins with min(stages-s-1, microbatches) forward passes, then takes one
// forward and one backward in turn, and ends with the backward passes left. A pass
// starts when the stage is free and its input is there: the forward pass of the
// stage before, the backward pass of the stage after. Handing over takes no time.
// With equal microbatches the result is (microbatches + stages - 1)·3·forward.
func OneFOneB(stages int, forward []float64) float64 {
	p := &pipeline{forward: forward, stages: make([]stage, stages)}
	for i := range p.stages {
		p.stages[i] = stage{
			warmup:   min(stages-i-1, len(forward)),
			forward:  make([]float64, 0, len(forward)),
			backward: make([]float64, 0, len(forward)),
		}
	}
	for moved := true; moved; {
		moved = false
		for i := range p.stages {
			for p.advance(i) {
				moved = true
			}
		}
	}
	end := 0.0
	for i := range p.stages {
		end = max(end, p.stages[i].now)
	}
	return end
}

type pipeline struct {
	forward []float64
	stages  []stage
}

// stage is what one stage did: when it ended the passes of the first microbatches.
type stage struct {
	warmup            int
	now               float64 // end of the last pass
	forward, backward []float64
}

// advance runs the next pass of stage i, if there is one and the time of its input
// is known.
func (p *pipeline) advance(i int) bool {
	s := &p.stages[i]
	f, b := len(s.forward), len(s.backward)
	if f < len(p.forward) && f <= s.warmup+b {
		input := 0.0
		if i > 0 {
			before := p.stages[i-1].forward
			if f == len(before) {
				return false
			}
			input = before[f]
		}
		s.now = max(s.now, input) + p.forward[f]
		s.forward = append(s.forward, s.now)
		return true
	}
	if b == len(p.forward) {
		return false
	}
	input := s.forward[b]
	if i+1 < len(p.stages) {
		after := p.stages[i+1].backward
		if b == len(after) {
			return false
		}
		input = after[b]
	}
	s.now = max(s.now, input) + 2*p.forward[b]
	s.backward = append(s.backward, s.now)
	return true
}
