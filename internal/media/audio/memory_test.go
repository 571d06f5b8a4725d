package audio

import (
	"errors"
	"os"
	"testing"

	"github.com/millrace-data/millrace/internal/testdata"
)

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
		room := &testdata.Room{}
		d := Decoder{Room: room}
		if _, err := d.filter(48000, max(c.form.Rate, 1)); err != nil { // its weights are kept, and bounded
			t.Fatal(err)
		}
		var array []byte
		took := testdata.Allocated(func() {
			w, wrong := d.Decode(c.data, c.form)
			array, err = w.AppendFloat32(nil), wrong
		})
		if err != nil || len(array) == 0 || room.Held != room.Asked {
			t.Fatalf("%s: %v, %d bytes are held of %d", c.name, err, room.Held, room.Asked)
		}
		if took > room.Asked+(1<<20) || c.exact && took < room.Asked*2/3 {
			t.Errorf("%s: %d bytes were asked for, %d were taken", c.name, room.Asked, took)
		}
		d.Done()
		d.Done()
		if kept := 4 * (cap(d.samples) + cap(d.resized)); room.Held != 0 || kept > keptMemory {
			t.Errorf("%s: %d bytes are held afterwards, %d are kept", c.name, room.Held, kept)
		}
	}
	unsaid := Info{Rate: 48000, Channels: 2}
	if all, minute := unsaid.memory(Form{}, true), unsaid.memory(Form{Seconds: 60}, true); all < 4*MaxSamples || minute != (9+4)*2*60*48000 {
		t.Errorf("a FLAC file that does not say how long it is takes %d bytes, or %d for a minute", all, minute)
	}
	d := Decoder{Room: &testdata.Room{Err: errors.New("the end")}}
	if _, err := d.Decode(long, Form{}); err == nil || err.Error() != "the end" || d.samples != nil {
		t.Error("decoded without room:", err)
	}
}
