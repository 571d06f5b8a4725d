package ffmpeg

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// maxListed bounds the frames of a video that are listed, 16 bytes each: ten hours at 60 a second.
const maxListed = 1 << 21

// Frame is a frame of a video.
type Frame struct {
	PTS int64 // when it is shown, in units of the video
	Key bool  // coded without others
}

// Video says which frames a video has.
type Video struct {
	Frames []Frame  // as they are shown: PTS rises
	Unit   *big.Rat // seconds
	// Indexed says that the container knows where each frame is.
	Indexed bool
}

// Clip decodes the frames of the first video of a file that a choice takes, and calls each for
// them in the order of time: with the frame's number among those that are taken, how many times it is taken (a
// choice by time may take one again) and, valid during the call, the picture as BMP of 24 bits. If it calls each with number 0 once more,
// what it gave before is void. It holds one picture at a time. An error of each ends the child, and is returned.
func (t *Tool) Clip(ctx context.Context, data []byte, c Choice, l Limits, each func(number, times int, bmp []byte) error) error {
	if err := whole(data); err != nil {
		return err
	}
	for _, decoded := range []bool{false, true} {
		v, err := t.list(ctx, data, decoded, l)
		if err != nil {
			return err
		}
		if v == nil { // the container has no times
			continue
		}
		chosen, err := c.of(v)
		if err != nil {
			return err
		}
		if all, err := t.decode(ctx, data, v, chosen, l, each); all || err != nil {
			return err
		}
		// The container has frames that are not shown: those that are have to be counted.
	}
	return fault.Userf("frames of the video are missing: it is damaged")
}

// list lists the frames of the first video: those that the container has, or those that
// decoding gives. It is nil if the container does not say when frames are shown.
func (t *Tool) list(ctx context.Context, data []byte, decoded bool, l Limits) (*Video, error) {
	v, entries, timeless := &Video{}, "packet=pts,flags", false
	if decoded {
		entries = "frame=best_effort_timestamp,key_frame"
	}
	said := &limited{most: maxWords, drop: true}
	err := t.probe(ctx, data, []string{"-select_streams", "v:0", "-show_entries", entries + ":stream=time_base:format=format_name"}, l, said, func(kind string, field func(string) string) error {
		switch kind {
		case "stream":
			unit, ok := new(big.Rat).SetString(field("time_base"))
			if !ok || unit.Sign() <= 0 {
				return fault.Userf("the video has no unit of time")
			}
			v.Unit = unit
		case "format":
			name := field("format_name")
			v.Indexed = strings.Contains(name, "mp4") || strings.Contains(name, "matroska")
		case "packet", "frame":
			pts, err := strconv.ParseInt(field("pts")+field("best_effort_timestamp"), 10, 64)
			timeless = timeless || err != nil
			if flags := field("flags"); !strings.Contains(flags, "D") { // D: an edit list leaves it out
				v.Frames = append(v.Frames, Frame{pts, strings.Contains(flags, "K") || field("key_frame") == "1"})
			}
			if len(v.Frames) > maxListed {
				return fault.Userf("the video has more than %d frames", maxListed)
			}
		}
		return nil
	})
	short := early(said.data)
	switch {
	case err != nil:
		return nil, err
	case v.Unit == nil || len(v.Frames) == 0:
		return nil, fault.Userf("it has no video, or an empty one")
	case short != nil:
		return nil, short
	case timeless && !decoded:
		return nil, nil
	case timeless:
		return nil, fault.Userf("frames of the video have no time at which they are shown")
	}
	slices.SortStableFunc(v.Frames, func(a, b Frame) int {
		switch {
		case a.PTS < b.PTS:
			return -1
		case a.PTS > b.PTS:
			return 1
		}
		return 0
	})
	v.Frames = slices.CompactFunc(v.Frames, func(a, b Frame) bool { return a.PTS == b.PTS })
	return v, nil
}

// decode calls each for the chosen frames, and reports whether all of them came.
func (t *Tool) decode(ctx context.Context, data []byte, v *Video, chosen []int, l Limits, each func(number, times int, bmp []byte) error) (all bool, err error) {
	frames := slices.Compact(slices.Clone(chosen))
	var pts []int64
	times := make([]int, len(frames))
	for i, f := range frames {
		pts = append(pts, v.Frames[f].PTS)
		for _, c := range chosen {
			if c == f {
				times[i]++
			}
		}
	}
	seek := v.before(frames[0])
	for {
		n := 0
		err = t.pictures(ctx, data, append([]string{"-copyts"}, seek...), []string{
			"-vf", "select=" + among(pts) + ",format=bgr24", "-frames:v", strconv.Itoa(len(pts)),
		}, func() bool { return n == len(frames) }, l, func(bmp []byte) error {
			if n == len(frames) {
				return fmt.Errorf("ffmpeg gave more than %d pictures", n)
			}
			n++
			return each(n-1, times[n-1], bmp)
		})
		if err == nil && n == len(frames) {
			return true, nil
		}
		if seek == nil || fault.ClassOf(err) == fault.Lost && err != nil {
			return false, err
		}
		seek = nil // the index is wrong, or what is before is needed
	}
}

// before returns the arguments that begin at the last key frame at or before a frame, if the container has an
// index to find that by.
func (v *Video) before(frame int) []string {
	if !v.Indexed {
		return nil
	}
	for ; frame > 0; frame-- {
		if f := v.Frames[frame]; f.Key && f.PTS > 0 {
			micros := new(big.Rat).Mul(v.Unit, new(big.Rat).SetInt64(f.PTS))
			micros.Mul(micros, big.NewRat(1_000_000, 1))
			at := new(big.Int).Div(micros.Num(), micros.Denom())
			if !micros.IsInt() {
				at.Add(at, big.NewInt(1)) // not before the frame: what is before has other key frames
			}
			return []string{"-seek_timestamp", "1", "-ss", at.String() + "us", "-noaccurate_seek"}
		}
	}
	return nil
}

// among is an expression that is not 0 for these times: a search tree, since FFmpeg bounds how deep
// an expression is.
func among(pts []int64) string {
	if len(pts) == 1 {
		return fmt.Sprintf("eq(pts\\,%d)", pts[0])
	}
	half := len(pts) / 2
	return fmt.Sprintf("if(lt(pts\\,%d)\\,%s\\,%s)", pts[half], among(pts[:half]), among(pts[half:]))
}

// Choice says which frames of a video are taken. Times are seconds from the first frame on; nil is
// none. One of Uniform, Rate and Every is set, or none: the key frames.
type Choice struct {
	From, To, Duration *big.Rat // the clip: [From, To), or [From, From + Duration)
	Uniform            int      // number of frames: in the middles of that many equal parts of the clip
	Rate               *big.Rat // frames a second, from the beginning of the clip on
	Every              int      // each n-th of the clip
	Most               int      // at most this many, the first ones
	Seconds            int      // longer videos are refused; 0: none
}

// length is how long a video is: the last frame is shown as long as the one before it, an only one for a
// second.
func (v *Video) length() *big.Rat {
	n := len(v.Frames)
	if n == 1 {
		return big.NewRat(1, 1)
	}
	last := v.Frames[n-1].PTS
	return v.seconds(last + last - v.Frames[n-2].PTS)
}

// seconds is a time after the first frame.
func (v *Video) seconds(pts int64) *big.Rat {
	return new(big.Rat).Mul(v.Unit, new(big.Rat).SetInt64(pts-v.Frames[0].PTS))
}

// at returns the number of the frame that is shown at a time.
func (v *Video) at(seconds *big.Rat) int {
	units := new(big.Rat).Quo(seconds, v.Unit)
	pts := new(big.Int).Div(units.Num(), units.Denom()).Int64() + v.Frames[0].PTS
	i, found := slices.BinarySearchFunc(v.Frames, pts, func(f Frame, pts int64) int {
		switch {
		case f.PTS < pts:
			return -1
		case f.PTS > pts:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	return max(i, 0)
}

// of returns the numbers of the frames that are taken, in order.
func (c *Choice) of(v *Video) (chosen []int, err error) {
	from, to := new(big.Rat), v.length()
	if c.Seconds > 0 && to.Cmp(big.NewRat(int64(c.Seconds), 1)) > 0 {
		return nil, fault.Userf("a video of %s seconds is longer than %d: leave it out, or raise max_seconds", to.FloatString(2), c.Seconds)
	}
	if c.From != nil {
		from = c.From
	}
	if from.Cmp(to) >= 0 {
		return nil, fault.Userf("the clip begins at %s seconds, and the video has %s", from.FloatString(2), to.FloatString(2))
	}
	end := c.To
	if c.Duration != nil {
		end = new(big.Rat).Add(from, c.Duration)
	}
	if end != nil && end.Cmp(to) < 0 {
		to = end
	}
	switch {
	case c.Uniform > 0:
		part := new(big.Rat).Sub(to, from)
		part.Quo(part, big.NewRat(2*int64(c.Uniform), 1))
		for k := range c.Uniform {
			middle := new(big.Rat).Mul(part, big.NewRat(2*int64(k)+1, 1))
			chosen = append(chosen, v.at(middle.Add(middle, from)))
		}
		return chosen, nil
	case c.Rate != nil:
		for at, step := from, new(big.Rat).Inv(c.Rate); at.Cmp(to) < 0 && len(chosen) < c.Most; at = new(big.Rat).Add(at, step) {
			chosen = append(chosen, v.at(at))
		}
		return chosen, nil
	}
	first := 0
	for ; first < len(v.Frames) && v.seconds(v.Frames[first].PTS).Cmp(from) < 0; first++ {
	}
	for i := first; i < len(v.Frames) && len(chosen) < c.Most && v.seconds(v.Frames[i].PTS).Cmp(to) < 0; i++ {
		if c.Every > 0 && (i-first)%c.Every == 0 || c.Every == 0 && v.Frames[i].Key {
			chosen = append(chosen, i)
		}
	}
	if len(chosen) == 0 {
		return nil, fault.Userf("no such frame is shown from %s to %s seconds", from.FloatString(2), to.FloatString(2))
	}
	return chosen, nil
}
