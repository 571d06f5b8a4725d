package audio

// Room lends memory to decoders; internal/memory has one that several share.
type Room interface {
	// Take waits until bytes more may be taken, and counts them until free is called.
	Take(bytes int64) (free func(), err error)
}

// keptMemory is the most memory that a Decoder keeps for its next file, in bytes: more costs little beside the
// time of decoding, and is not counted while nothing is decoded.
const keptMemory = 4 << 20

// sampleBytes are those of a sample while it is decoded and resampled, and of a float32.
const sampleBytes = 4

// Done ends the use of what Decode returned last. It may be called again.
func (d *Decoder) Done() {
	if sampleBytes*(cap(d.samples)+cap(d.resized)) > keptMemory {
		d.samples, d.resized = nil, nil
	}
	if d.free != nil {
		d.free()
		d.free = nil
	}
}

// hold takes room for a file that its header describes, until Done is called. growing: how long it is
// is found while it is decoded.
func (d *Decoder) hold(i Info, f Form, growing bool) (err error) {
	if d.Room != nil {
		d.free, err = d.Room.Take(i.memory(f, growing))
	}
	return err
}

// memory is the most bytes that a file takes until its array is made, with that.
func (i Info) memory(f Form, growing bool) int64 {
	moments := i.Samples
	if moments == 0 && growing {
		moments = MaxSamples / int64(max(i.Channels, 1))
		if f.Seconds > 0 {
			moments = min(moments, int64(f.Seconds)*int64(i.Rate))
		}
	}
	n := sampleBytes * moments * int64(i.Channels)
	if growing {
		n = n * 9 / 4 // the last piece of memory grew by a quarter, and the one before is still there
	}
	channels := int64(i.Channels)
	if f.Mono {
		channels = 1
	}
	out := min(i.moments(moments, f), MaxSamples/channels)
	if f.Rate != 0 && f.Rate != i.Rate {
		n += sampleBytes * out * channels
	}
	return n + sampleBytes*out*channels
}
