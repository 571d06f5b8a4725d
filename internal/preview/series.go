package preview

import "math"

// Timeline is numbers by step in bounded memory: neighbouring steps share a point
// once there are many.
type Timeline struct {
	First  int64    `json:"first"` // step of the first point
	Width  int64    `json:"width"` // steps to a point; the last may have fewer
	Series []Series `json:"series"`
	steps  int64    // so far
}

// Series is one number by step.
type Series struct {
	Name   string    `json:"name"`
	Join   Join      `json:"join"` // how steps of a point come together
	Values []float64 `json:"values"`
}

// Join is how several steps become one point.
type Join string

// The ways to join.
const (
	Mean Join = "mean"
	Low  Join = "min"
	High Join = "max"
)

// maxPoints of a series: more than a chart has pixels to show.
const maxPoints = 512

// Points is the number of points of each series.
func (t *Timeline) Points() int { return int((t.steps + t.Width - 1) / max(t.Width, 1)) }

// At is the series of a name; an empty one if there is none.
func (t *Timeline) At(name string) Series {
	for _, s := range t.Series {
		if s.Name == name {
			return s
		}
	}
	return Series{Name: name}
}

// add notes the values of the next step, one for each series, in their order.
func (t *Timeline) add(values []float64) {
	t.Width = max(t.Width, 1)
	if t.steps == maxPoints*t.Width {
		t.halve()
	}
	n := t.steps % t.Width // steps that the last point has so far
	for i := range t.Series {
		s := &t.Series[i]
		if n == 0 {
			s.Values = append(s.Values, values[i])
			continue
		}
		last := &s.Values[len(s.Values)-1]
		*last = s.Join.of(*last, float64(n), values[i], 1)
	}
	t.steps++
}

// halve joins each two neighbouring points.
func (t *Timeline) halve() {
	for i := range t.Series {
		s := &t.Series[i]
		for k := range len(s.Values) / 2 {
			s.Values[k] = s.Join.of(s.Values[2*k], 1, s.Values[2*k+1], 1)
		}
		s.Values = s.Values[:len(s.Values)/2]
	}
	t.Width *= 2
}

// of joins two values that stand for the same number of steps each.
func (j Join) of(a, n, b, m float64) float64 {
	switch j {
	case Low:
		return math.Min(a, b)
	case High:
		return math.Max(a, b)
	}
	return (a*n + b*m) / (n + m)
}
