package change_test

import (
	"encoding/json"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/change"
)

// TestEqual: changes are equal if they are written alike, wherever they stand.
func TestEqual(t *testing.T) {
	texts := []string{
		`{"step":3,"pause":"web"}`, `{"step":4,"pause":"web"}`, `{"step":3,"resume":"web"}`, `{"step":3,"drop":"web"}`, `{"step":3,"pause":"web","reason":"bad"}`,
		`{"step":3,"weights":{"web":1,"code":2}}`, `{"step":3,"weights":{"web":1,"code":3}}`, `{"step":3,"schedule":true}`,
		`{"step":3,"add":{"source":{"name":"math"},"weight":0.5}}`, `{"step":3,"add":{"source":{"name":"math"},"weight":0.25}}`, `{"step":3,"add":{"source":{"name":"text"},"weight":0.5}}`,
		`{"step":3,"sequences":8}`, `{"step":3,"sequence_length":8}`, `{"step":3,"topology":{"dp":2}}`, `{"step":3,"topology":{"dp":2,"tp":1}}`, `{"step":3,"skip":2}`,
		`{"step":3,"ban":{"source":"web","file":"a","row":1}}`, `{"step":3,"ban":{"source":"web","file":"a","row":2}}`,
		`{"step":3,"cancel":{"step":3,"pause":"web"}}`, `{"step":3,"cancel":{"step":3,"resume":"web"}}`,
	}
	for i, a := range texts {
		for k, b := range texts {
			x, errX := change.Parse([]byte(a))
			y, errY := change.Parse([]byte(b))
			if errX != nil || errY != nil {
				t.Fatal(errX, errY)
			}
			y.Origin = "file:1: "
			if x.Equal(y) != (i == k) || x.Equal(y) != (x.String() == y.String()) {
				t.Errorf("%s and %s: equal is %v", a, b, x.Equal(y))
			}
		}
	}
	spaced, err := change.Parse([]byte(`{"step": 3, "add": {"source": {"name" : "math"}, "weight": 0.5}}`))
	if err != nil {
		t.Fatal(err)
	}
	var same change.Change
	if err := json.Unmarshal([]byte(texts[8]), &same); err != nil || !spaced.Equal(same) {
		t.Errorf("an entry with other spaces is another one: %v", err)
	}
}
