package audio

import (
	"errors"
	"os"
	"runtime"
	"testing"
)

// shelf is a Room that notes what it was asked for.
type shelf struct {
	asked, held int64
	err         error
}

func (s *shelf) Take(bytes int64) (func(), error) {
	s.asked, s.held = bytes, s.held+bytes
	return func() { s.held -= bytes }, s.err
}

// allocated is how many bytes are taken while do runs.
func allocated(do func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestMemory compares what a file takes with what was asked for before it was decoded.
func TestMemory(t *testing.T) {
	tone, err := os.ReadFile("testdata/tone.flac")
	if err != nil {
		t.Fatal(err)
	}
	long := wavOf(1, 2, 48000, 16, make([]byte, 4*48000*30))
	for _, c := range []struct {
		name  string
		data  []byte
		form  Form
		exact bool
	}{
		{"as it is", long, Form{}, true},
		{"one channel, another rate", long, Form{Rate: 16000, Mono: true}, true},
		{"a higher rate", long, Form{Rate: 96000}, true},
		{"FLAC", tone, Form{Rate: 16000, Mono: true}, false},
	} {
		room := &shelf{}
		d := Decoder{Room: room}
		if _, err := d.filter(48000, max(c.form.Rate, 1)); err != nil { // its weights are kept, and bounded
			t.Fatal(err)
		}
		var array []byte
		took := allocated(func() {
			w, wrong := d.Decode(c.data, c.form)
			array, err = w.AppendFloat32(nil), wrong
		})
		if err != nil || len(array) == 0 || room.held != room.asked {
			t.Fatalf("%s: %v, %d bytes are held of %d", c.name, err, room.held, room.asked)
		}
		if took > room.asked+(1<<20) || c.exact && took < room.asked*2/3 {
			t.Errorf("%s: %d bytes were asked for, %d were taken", c.name, room.asked, took)
		}
		d.Done()
		d.Done()
		if kept := 4 * (cap(d.samples) + cap(d.resized)); room.held != 0 || kept > keptMemory {
			t.Errorf("%s: %d bytes are held afterwards, %d are kept", c.name, room.held, kept)
		}
	}
	unsaid := Info{Rate: 48000, Channels: 2}
	if all, minute := unsaid.memory(Form{}, true), unsaid.memory(Form{Seconds: 60}, true); all < 4*MaxSamples || minute != (9+4)*2*60*48000 {
		t.Errorf("a FLAC file that does not say how long it is takes %d bytes, or %d for a minute", all, minute)
	}
	d := Decoder{Room: &shelf{err: errors.New("the end")}}
	if _, err := d.Decode(long, Form{}); err == nil || err.Error() != "the end" || d.samples != nil {
		t.Error("decoded without room:", err)
	}
}
