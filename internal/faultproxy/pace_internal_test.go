package faultproxy

import (
	"testing"
	"time"
)

// TestPace: a line carries what its limit says however late its sleeps end, and no burst after it had nothing to carry.
func TestPace(t *testing.T) {
	var p pace
	begin := time.Now()
	now := begin
	for range 20 {
		now = now.Add(max(p.wait(now, 5000, 100_000), 0) + 30*time.Millisecond) // as late as that
	}
	if took := now.Sub(begin); took < time.Second || took > 1100*time.Millisecond {
		t.Errorf("100 KB took %v at 100 KB/s", took)
	}
	if d := p.wait(now.Add(time.Second), 5000, 100_000); d != 50*time.Millisecond {
		t.Errorf("after a pause a part takes %v", d)
	}
}
