package constructor

import (
	"testing"
	"time"
)

// TestLostLoaderIsALine: a loader that is lost is reported once in a while, however many
// fetches meet it; each loader has its own word.
func TestLostLoaderIsALine(t *testing.T) {
	p, now := newPeers(nil), time.Now()
	words := 0
	for i := range 600 { // a minute of one fetch
		for _, address := range []string{"a:1", "b:1"} {
			if p.shouldLog(address, now.Add(time.Duration(i)*100*time.Millisecond)) {
				words++
			}
		}
	}
	if words != 4 {
		t.Errorf("%d words on two loaders in a minute, want 4", words)
	}
}
