package jobspec

import (
	"fmt"
	"math/big"
)

// Frames makes an array of frames of the video of a column, in its place.
type Frames struct {
	Pixels            // what becomes of each frame
	Uniform    int    // frames in the middles of equal parts; 0 = none
	FPS        string // frames a second, a decimal number or a fraction; "" = none
	Every      int    // every n-th; 0 = none
	From       string // seconds
	To         string // seconds; "" = the end
	Duration   string // seconds, in place of To
	MaxFrames  int    // the first ones
	MaxSeconds int    // longer videos are bad records
	MaxBytes   int64  // of the array
	Timeout    int    // seconds
	Memory     int64  // bytes of a process
}

var framesOperator = Operator{
	Name:    "frames",
	Doc:     "Has FFmpeg decode frames of the video of a column, resizes and crops them as `pixels` does, and puts one array of all in the video's place, for `keep`. FFmpeg's version is part of the data's manifest. See [media.md](media.md#videos).",
	Example: "[{frames: {column: mp4, uniform: 8, resize: shortest, size: 256, crop: 224}}, {tokenize: bytes}]",
	Takes:   []string{"the column"}, Gives: []string{"the column"},
	Worker: true,
	Rules:  "Before the tokens are made, and before `chat`. One of `uniform`, `fps` and `every`, or none for key frames; `to` or `duration`. The other fields are those of [`pixels`](#pixels).",

	step: (*Frames)(nil), value: field{kind: objectKind, object: &framesObject}, repeat: true, place: pythonOperator.place,
}

// mostFrames bounds the frames of an array: FFmpeg gets the time of each of them as one argument.
const mostFrames = 1024

var framesObject = object{title: "frames", short: "column", fields: append([]field{
	{key: "column", name: "Column", kind: textKind, required: true,
		doc: "The column that holds a video, as bytes (MP4, Matroska, WebM, AVI and more). Null stays null. Afterwards the column holds a `.npy` file: `uint8` or `float32`, [frames, height, width, channels]."},
	{key: "uniform", name: "Uniform", kind: countKind, max: mostFrames, empty: true, auto: "none",
		doc: "This number of frames: those that are shown in the middles of this many equal parts of the clip. One of a clip with fewer frames is there more than once."},
	{key: "fps", name: "FPS", kind: textKind, empty: true, auto: "none",
		doc: "Frames a second, such as `2`, `0.5` or `30000/1001`: those that are shown at these times, from the beginning of the clip on."},
	{key: "every", name: "Every", kind: countKind, max: maxAxis, empty: true, auto: "key frames, if `uniform` and `fps` are not given either",
		doc: "Every n-th frame of the clip, from the first one on."},
	{key: "from", name: "From", kind: textKind, empty: true, auto: "0",
		doc: "Where the clip begins, in seconds from the first frame on, such as `1.5`. A video that ends before is a bad record."},
	{key: "to", name: "To", kind: textKind, empty: true, auto: "the end of the video",
		doc: "Where the clip ends, in seconds; a frame that is shown from then on is none of it."},
	{key: "duration", name: "Duration", kind: textKind, empty: true, auto: "to the end",
		doc: "How long the clip is, in seconds, in place of `to`."},
	{key: "max_frames", name: "MaxFrames", kind: countKind, def: 64, min: 1, max: mostFrames,
		doc: "At most the first n frames are taken, but for `uniform`, and what is behind them is not decoded."},
	{key: "max_seconds", name: "MaxSeconds", kind: countKind, def: 3600, min: 1, max: 86_400,
		doc: "A longer video is a bad record."},
	{key: "max_bytes", name: "MaxBytes", kind: bytesKind, def: int64(256 << 20), min: 1, max: 1 << 30,
		doc: "The array takes at most this. A video that gives more is a bad record."},
	{key: "timeout", name: "Timeout", kind: countKind, def: 120, min: 1, max: 86_400, free: freeBudget,
		doc: "Seconds for a video, after which the process is killed and the video tried again."},
	{key: "memory", name: "Memory", kind: bytesKind, def: int64(1 << 30), min: 64 << 20, max: maxBytes, free: freeBudget,
		doc: "Memory of a process, beyond which it is killed and the video tried again."},
}, pixelsObject.fields[1:]...)}

// Operator implements Transform.
func (*Frames) Operator() string { return framesOperator.Name }

// Words implements Transform.
func (f *Frames) Words() string { return "frames of " + f.Column }

func (f *Frames) check(c *checker, at string) {
	if !c.sound(at) {
		return
	}
	f.Pixels.check(c, at)
	choices := 0
	for _, set := range []bool{f.Uniform > 0, f.FPS != "", f.Every > 0} {
		if set {
			choices++
		}
	}
	switch {
	case choices > 1:
		c.error(at, "chooses frames in more than one way", "keep one of uniform, fps and every, or none of them for key frames")
	case f.To != "" && f.Duration != "":
		c.error(at+".duration", "is given beside to", "keep one of them")
	}
	times := map[string]*big.Rat{}
	for _, of := range []struct{ key, text string }{{"fps", f.FPS}, {"from", f.From}, {"to", f.To}, {"duration", f.Duration}} {
		if of.text == "" {
			continue
		}
		v, err := Seconds(of.text)
		switch {
		case err != nil:
			c.error(at+"."+of.key, err.Error(), "give a decimal number, such as 1.5")
			return
		case v.Sign() == 0 && of.key != "from":
			c.error(at+"."+of.key, "is 0", "give a number above 0")
			return
		}
		times[of.key] = v
	}
	if from, to := times["from"], times["to"]; from != nil && to != nil && from.Cmp(to) >= 0 {
		c.error(at+".to", fmt.Sprintf("is %s, not behind from, %s", f.To, f.From), "a clip ends after it begins")
	}
}

// Seconds reads a decimal number or a fraction that is not negative.
func Seconds(text string) (*big.Rat, error) {
	v, ok := new(big.Rat).SetString(text)
	if !ok || len(text) > 32 || v.Sign() < 0 || v.Num().BitLen() > 64 || v.Denom().BitLen() > 64 {
		return nil, fmt.Errorf("%.40q is not a number of 0 or more", text)
	}
	return v, nil
}

// Probe gives columns with what the headers of a sound or a video say.
type Probe struct {
	Column  string
	Timeout int   // seconds
	Memory  int64 // bytes of a process
}

var probeOperator = Operator{
	Name:    "probe",
	Doc:     "Reads the headers of the sound or video of a column by ffprobe, for a `filter` behind it: with the column `mp4` it gives `mp4.seconds`, `mp4.video` (the codec, such as `h264`), `mp4.width`, `mp4.height` (as shown), `mp4.fps`, `mp4.sound` (the codec), `mp4.rate` (samples a second) and `mp4.channels`, null where the file has none. See [media.md](media.md#videos).",
	Example: "[{probe: mp4}, {filter: mp4.seconds >= 2 and mp4.height >= 240}, {frames: {column: mp4, uniform: 8}}, {tokenize: bytes}]",
	Takes:   []string{"the column"}, Gives: []string{"the columns"},
	Worker: true,
	Rules:  "Before the tokens are made, and before `chat`.",

	step: (*Probe)(nil), value: field{kind: objectKind, object: &probeObject}, repeat: true, place: pythonOperator.place,
}

var probeObject = object{title: "probe", short: "column", fields: []field{
	{key: "column", name: "Column", kind: textKind, required: true,
		doc: "The column that holds a file that FFmpeg reads, as bytes. Null has nulls."},
	{key: "timeout", name: "Timeout", kind: countKind, def: 60, min: 1, max: 86_400, free: freeBudget,
		doc: "Seconds for a file, after which the process is killed and the file tried again."},
	{key: "memory", name: "Memory", kind: bytesKind, def: int64(512 << 20), min: 64 << 20, max: maxBytes, free: freeBudget,
		doc: "Memory of a process, beyond which it is killed and the file tried again."},
}}

// Operator implements Transform.
func (*Probe) Operator() string { return probeOperator.Name }

// Words implements Transform.
func (p *Probe) Words() string { return "what the headers of " + p.Column + " say" }

func (p *Probe) check(c *checker, at string) { c.column(at+".column", p.Column) }
