package jobspec

// Convert has FFmpeg make sound or pictures of the file of a column, in its place.
type Convert struct {
	Column           string
	To               string // wav (default), frames
	MaxSeconds       int    // wav: decoding ends a second behind it
	Every            int    // frames: every n-th; 0 = key frames
	MaxFrames        int    // frames: the first ones
	MaxBytes         int64  // of what is made; more makes a bad record
	MaxDecodedPixels int    // of a frame; more makes a bad record
	Timeout          int    // seconds
	Memory           int64  // bytes of a process
}

var convertOperator = Operator{
	Name:    "convert",
	Doc:     "Has FFmpeg make WAV, or pictures, of the sound or video of a column, and puts them in its place: for `waveform`, `pixels` or `image` behind it. FFmpeg's version is part of the data's manifest. See [media.md](media.md#ffmpeg).",
	Example: "[{convert: mp3}, {tokenize: bytes}, {waveform: {column: mp3, token: 300}}]",
	Takes:   []string{"the column"}, Gives: []string{"the column"},
	Worker: true,
	Rules:  "Before the tokens are made, and before `chat`.",

	step: (*Convert)(nil), value: field{kind: objectKind, object: &convertObject}, repeat: true, place: pythonOperator.place,
}

var convertObject = object{title: "convert", short: "column", fields: []field{
	{key: "column", name: "Column", kind: textKind, required: true,
		doc: "The column that holds a file that FFmpeg reads (MP3, Ogg with Opus or Vorbis, M4A, MP4, Matroska, WebM, AVI and more), as bytes. Null stays null."},
	{key: "to", name: "To", kind: textKind, def: "wav", enum: []string{"wav", "frames"},
		doc: "`wav`: its first sound, with its own rate and channels; `frames`: pictures of its first video, a list of BMP files."},
	{key: "max_seconds", name: "MaxSeconds", kind: countKind, def: 600, min: 1, max: 86_400,
		doc: "`wav`: decoding ends one second behind it, so that a `waveform` step with the same `max_seconds` refuses the record."},
	{key: "every", name: "Every", kind: countKind, max: maxAxis,
		doc: "`frames`: every n-th frame, from the first on; 0 takes the key frames, which are coded without others."},
	{key: "max_frames", name: "MaxFrames", kind: countKind, def: 16, min: 1, max: maxAxis,
		doc: "`frames`: at most the first n of these are taken, and the rest of the video is not decoded."},
	{key: "max_bytes", name: "MaxBytes", kind: bytesKind, def: int64(256 << 20), min: 1, max: 1 << 30,
		doc: "What is made of a file takes at most this. A file that gives more is a bad record."},
	{key: "max_decoded_pixels", name: "MaxDecodedPixels", kind: countKind, def: 1 << 24, min: 1, max: maxImagePixels,
		doc: "A video with larger frames is a bad record."},
	{key: "timeout", name: "Timeout", kind: countKind, def: 120, min: 1, max: 86_400, free: freeBudget,
		doc: "Seconds for a file, after which the process is killed and the file tried again."},
	{key: "memory", name: "Memory", kind: bytesKind, def: int64(1 << 30), min: 64 << 20, max: maxBytes, free: freeBudget,
		doc: "Memory of a process, beyond which it is killed and the file tried again. Processes take it of `loader_buffer`, half of that together; one that takes more runs alone."},
}}

// Operator implements Transform.
func (*Convert) Operator() string { return convertOperator.Name }

// Words implements Transform.
func (s *Convert) Words() string { return "FFmpeg makes " + s.To + " of " + s.Column }

func (s *Convert) check(c *checker, at string) { c.column(at+".column", s.Column) }
