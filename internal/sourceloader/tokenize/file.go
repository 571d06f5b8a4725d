package tokenize

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/regular"
)

// fileName is the name of an encoding from a file.
const fileName = "tokenizer.json"

// maxFile bounds the size of a tokenizer.json. The largest published ones have 35 MB.
const maxFile = 128 << 20

// fileModel is what an encoding has that comes from a tokenizer.json. It is read-only.
type fileModel struct {
	raw, normal   addedTokens  // looked for before and after normalizing
	normalize     []normalizer //
	stages        []stage      // of the pre-tokenizer
	model         pieceModel   // nil: byte-pair merging
	joint         string       // what tokens begin with that continue a word, for Decode; "": none do
	before, after []int32      // what the post-processor adds
	specials      []string     // sorted
	mark          string       // what stands for a space in tokens, for Decode
	sentencePiece bool         // of a SentencePiece model
	fuse          bool         // neighbours that are the unknown token become one
	spaced        bool         // a space may be added before a text; see Spaced
}

// Spaced reports whether a space may be added before a text or a part of it. A token that is only that had no loss in
// TokensOf of earlier builds, so that jobs with the loss of parts do not go on.
func (e *Encoding) Spaced() bool { return e.file != nil && e.file.spaced }

// pieceModel makes tokens of a piece, in place of merging. It is safe for concurrent use, each
// with a scratch of its own.
type pieceModel interface {
	appendPiece(dst []int32, piece []byte, s *pieceScratch) []int32
}

// LoadFile returns the encoding of a Hugging Face tokenizer.json or of a SentencePiece model,
// id for id what the tokenizers library or SentencePiece makes of the file; post says whether to add what its post-processor adds to every text that has
// tokens, such as BOS and EOS. declared is the file's SHA-256 in lower-case hex,
// or "". Truncation and padding of the file have no effect.
//
// All errors are of class fault.User. What of a file is not supported is an error
// that names its place in the file.
func LoadFile(path, declared string, post bool) (*Encoding, error) {
	data, err := readTokenizerFile(path)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(data)
	if got := hex.EncodeToString(digest[:]); declared != "" && got != declared {
		return nil, fault.Userf("%s is not the file that is declared: its SHA-256 is %s, declared is sha256: %s; restore that file, or declare this one", path, got, declared)
	}
	r := &fileReader{tokens: map[string]int32{}}
	var e *Encoding
	if isSPModel(path, data) {
		e, err = r.sentencePiece(data)
	} else {
		e, err = r.encoding(data, post)
	}
	if other := otherFiles(path); err != nil && other != "" {
		return nil, fault.Userf("%s is %s, not a tokenizer: %w; name the model's tokenizer.json or SentencePiece model, which often lies beside it", path, other, err)
	}
	if err != nil {
		return nil, fault.Userf("%s: %w; see docs/tokenizers.md for what is supported, or tokenize the data offline and give its ids as `tokens`", path, err)
	}
	if e.digest = digest; r.revision > 0 {
		e.digest = sha256.Sum256(fmt.Appendf(digest[:], "revision %d", r.revision))
	}
	return e, nil
}

// otherFiles says what a file of another kind is that is often taken for a tokenizer, "" for none.
func otherFiles(path string) string {
	switch base := filepath.Base(path); base {
	case "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json", "generation_config.json", "preprocessor_config.json":
		return "a part of the model's settings"
	case "vocab.json", "merges.txt", "vocab.txt", "encoder.json", "vocab.bpe":
		return "a part of a tokenizer"
	default:
		if filepath.Ext(base) == ".tiktoken" {
			return "a rank file (write encoding: and ranks: instead)"
		}
	}
	return ""
}

func readTokenizerFile(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Userf("there is no tokenizer file %s; give the path of a model's tokenizer.json or SentencePiece model", path)
	}
	if err != nil {
		return nil, fault.Userf("opening a tokenizer file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fault.Userf("reading a tokenizer file: %w", err)
	case len(data) > maxFile:
		return nil, fault.Userf("%s is not a tokenizer: it is larger than %d MiB", path, maxFile>>20)
	}
	return data, nil
}

// tokenizerJSON is the file.
type tokenizerJSON struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// fileReader is the state of reading a file.
type fileReader struct {
	revision  int // the build that changed ids of the file last, so that jobs of earlier ones do not go on; 0: none did
	file      fileModel
	tokens    map[string]int32 // of the model, then with added ones
	vocab     *vocab
	texts     [][]byte // of tokens by id
	byteLevel bool     // tokens are bytes, written as characters
	deletes   bool     // the normalizer may leave out the beginning of a text
	put       []string // what it may put there for several characters; see puts
	first     bool     // a Metaspace asks which piece is the first
}

// revise notes that build number n changed ids of the file.
func (r *fileReader) revise(n int) { r.revision = max(r.revision, n) }

func (r *fileReader) encoding(data []byte, post bool) (*Encoding, error) {
	var file tokenizerJSON
	if err := decode("the file", data, &file); err != nil {
		return nil, err
	}
	if file.Version != "1.0" {
		return nil, fmt.Errorf("version is %q, supported is \"1.0\"", file.Version)
	}
	if err := checkText(data); err != nil {
		return nil, err
	}
	needClasses()
	if err := r.normalizer("normalizer", file.Normalizer); err != nil {
		return nil, err
	}
	if err := r.preTokenizer("pre_tokenizer", file.PreTokenizer); err != nil {
		return nil, err
	}
	if err := r.model("model", file.Model); err != nil {
		return nil, err
	}
	if err := r.added(file.AddedTokens); err != nil {
		return nil, err
	}
	if err := r.postProcessor("post_processor", file.PostProcessor); err != nil {
		return nil, err
	}
	if !post {
		r.file.before, r.file.after = nil, nil
	}
	e := &Encoding{name: fileName, eot: -1, size: len(r.texts), special: map[int32]string{}, vocab: r.vocab, file: &r.file}
	for _, t := range file.AddedTokens {
		e.special[r.tokens[t.Content]] = t.Content
	}
	return e, nil
}

// added takes in the added tokens. Their ids follow from the vocabulary, as in the library; those
// in the file have to be the same.
func (r *fileReader) added(list []addedToken) error {
	model := len(r.tokens)
	next := int32(model)
	last := map[string]int{}
	for i, t := range list {
		last[t.Content] = i
	}
	for i := range list {
		t := &list[i]
		path := fmt.Sprintf("added_tokens[%d]", i)
		if t.Content == "" {
			return fmt.Errorf("%s is empty", path)
		}
		id, ok := r.tokens[t.Content]
		if !ok {
			id, next = next, next+1
			r.tokens[t.Content] = id
		}
		if id != t.ID {
			return fmt.Errorf("%s: %q has id %d, but the tokenizers library gives it id %d: save the file again with a current version of it", path, t.Content, t.ID, id)
		}
		if last[t.Content] != i {
			continue
		}
		if t.Special {
			r.file.specials = append(r.file.specials, t.Content)
		}
		for int(id) >= len(r.texts) {
			r.texts = append(r.texts, nil)
		}
		if !t.Normalized {
			r.file.raw.add(t.Content, t)
			continue
		}
		w := divided{text: []byte(t.Content)}
		if w.normalize(r.file.normalize); len(w.text) == 0 {
			return fmt.Errorf("%s: %q is empty after normalizing", path, t.Content)
		}
		r.file.normal.add(string(w.text), t)
	}
	slices.Sort(r.file.specials)
	r.file.specials = slices.Compact(r.file.specials)
	if r.file.raw.overlapping() || r.file.normal.overlapping() {
		r.revise(3)
	}
	return r.firstWhole()
}

// postProcessor reads what is added before and after a text.
func (r *fileReader) postProcessor(path string, raw json.RawMessage) error {
	kind, err := kindOf(path, raw)
	if err != nil {
		return err
	}
	switch kind {
	case "", "ByteLevel": // which is about offsets
		return nil
	case "Sequence":
		var s struct {
			Type       string            `json:"type"`
			Processors []json.RawMessage `json:"processors"`
		}
		if err := decode(path, raw, &s); err != nil {
			return err
		}
		for i, p := range s.Processors {
			if err := r.postProcessor(fmt.Sprintf("%s.processors[%d]", path, i), p); err != nil {
				return err
			}
		}
		return nil
	case "BertProcessing", "RobertaProcessing":
		return r.clsSep(path, raw)
	case "TemplateProcessing":
		return r.template(path, raw)
	}
	return unsupported(path, kind, "TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel", "Sequence")
}

// around adds ids before and after those of the processors before.
func (r *fileReader) around(before, after []int32) {
	r.file.before = slices.Concat(before, r.file.before)
	r.file.after = slices.Concat(r.file.after, after)
}

// clsSep reads a BERT or RoBERTa post-processor.
func (r *fileReader) clsSep(path string, raw json.RawMessage) error {
	var p struct {
		Type           string `json:"type"`
		Sep, Cls       tokenAndID
		TrimOffsets    bool `json:"trim_offsets"`
		AddPrefixSpace bool `json:"add_prefix_space"`
	}
	if err := decode(path, raw, &p); err != nil {
		return err
	}
	r.around([]int32{p.Cls.id}, []int32{p.Sep.id})
	return nil
}

// tokenAndID is ["[SEP]", 102].
type tokenAndID struct{ id int32 }

// UnmarshalJSON reads the pair.
func (t *tokenAndID) UnmarshalJSON(raw []byte) error {
	var name string
	pair := []any{&name, &t.id}
	if err := json.Unmarshal(raw, &pair); err != nil || len(pair) != 2 {
		return fmt.Errorf("want a token and its id, not %.40s", raw)
	}
	return nil
}

// template reads a TemplateProcessing.
func (r *fileReader) template(path string, raw json.RawMessage) error {
	type item struct {
		SpecialToken *struct {
			ID     string `json:"id"`
			TypeID int    `json:"type_id"`
		}
		Sequence *struct {
			ID     string `json:"id"`
			TypeID int    `json:"type_id"`
		}
	}
	var p struct {
		Type          string          `json:"type"`
		Single        []item          `json:"single"`
		Pair          json.RawMessage `json:"pair"`
		SpecialTokens map[string]struct {
			ID     string   `json:"id"`
			IDs    []int32  `json:"ids"`
			Tokens []string `json:"tokens"`
		} `json:"special_tokens"`
	}
	if err := decode(path, raw, &p); err != nil {
		return err
	}
	var before, after []int32
	texts := 0
	for i, x := range p.Single {
		at := fmt.Sprintf("%s.single[%d]", path, i)
		switch {
		case x.Sequence != nil && x.Sequence.ID == "A":
			texts++
		case x.SpecialToken != nil:
			s, ok := p.SpecialTokens[x.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("%s names the special token %q, which is not in %s.special_tokens", at, x.SpecialToken.ID, path)
			}
			if texts == 0 {
				before = append(before, s.IDs...)
			} else {
				after = append(after, s.IDs...)
			}
		default:
			return fmt.Errorf("%s is neither a special token nor sequence A", at)
		}
	}
	if texts != 1 {
		return fmt.Errorf("%s.single has the text %d times, supported is once", path, texts)
	}
	r.around(before, after)
	return nil
}

// appendFile appends the tokens of a text. Of special tokens in the text those count that are
// allowed.
func (e *Encoder) appendFile(dst []int32, text []byte, allowed func(*addedToken) bool) []int32 {
	f := e.file
	from := len(dst)
	dst = append(dst, f.before...)
	body := len(dst)
	f.raw.split(text, allowed, func(at int, segment []byte, t *addedToken) {
		if t != nil {
			dst = append(dst, t.ID)
			return
		}
		e.divided.text = segment
		e.divided.normalize(f.normalize)
		normal := e.divided.text
		if f.normal.byText == nil {
			dst = e.appendSegment(dst, normal, at == 0)
			return
		}
		f.normal.split(normal, allowed, func(inner int, segment []byte, t *addedToken) {
			if t != nil {
				dst = append(dst, t.ID)
				return
			}
			dst = e.appendSegment(dst, segment, at == 0 && inner == 0)
		})
	})
	e.divided.release()
	if f.fuse {
		dst = fuseUnknown(dst, body, e.vocab.unk.id)
	}
	if len(dst) == body {
		return dst[:from]
	}
	return append(dst, f.after...)
}

// fuseUnknown makes one of neighbours in dst[from:] that are the unknown token.
func fuseUnknown(dst []int32, from int, unk int32) []int32 {
	out := dst[:from]
	for i, id := range dst[from:] {
		if id != unk || i == 0 || dst[from+i-1] != unk {
			out = append(out, id)
		}
	}
	return out
}

// appendSegment divides text without added tokens into pieces, and appends their tokens.
func (e *Encoder) appendSegment(dst []int32, text []byte, first bool) []int32 {
	if len(text) == 0 {
		return dst
	}
	w := &e.divided
	w.text, w.spans = text, append(w.spans[:0], span{0, int32(len(text))})
	for i := range e.file.stages {
		e.file.stages[i].apply(w, first)
	}
	dst = slices.Grow(dst, len(w.text)/bytesPerToken)
	for spans := w.spans; len(spans) > 0; {
		batch := e.batch[:min(len(spans), batchPieces)]
		for k := range batch {
			p := spans[k]
			batch[k].key = wordKey(w.text, int(p.from), int(p.to))
			batch[k].piece(int(p.to - p.from))
		}
		e.slots(batch)
		for k := range batch {
			dst = e.appendPiece(dst, w.text[spans[k].from:], &batch[k])
		}
		spans = spans[len(batch):]
	}
	return dst
}

// readable is the text that a token of a file stands for.
func (f *fileModel) readable(token []byte) []byte {
	if f.joint != "" {
		if rest, ok := bytes.CutPrefix(token, []byte(f.joint)); ok && len(rest) > 0 {
			return rest
		}
		return append([]byte(" "), token...)
	}
	if f.mark == "" {
		return token
	}
	var b byte
	if n, _ := fmt.Sscanf(string(token), "<0x%02X>", &b); n == 1 && len(token) == 6 {
		return []byte{b}
	}
	return bytes.ReplaceAll(token, []byte(f.mark), []byte(" "))
}

// sortedTokens returns the tokens of a vocabulary by id; missing ones are "".
func sortedTokens(path string, vocab map[string]int32) ([]string, error) {
	size := int32(0)
	for token, id := range vocab {
		if id < 0 || id >= none {
			return nil, fmt.Errorf("%s: token %q has id %d; ids are 0..%d", path, token, id, none-1)
		}
		size = max(size, id+1)
	}
	if int(size) > 8*len(vocab)+1024 {
		return nil, fmt.Errorf("%s has %d tokens and ids up to %d: most ids are not in use", path, len(vocab), size-1)
	}
	tokens := make([]string, size)
	for token, id := range vocab {
		if was := tokens[id]; was != "" {
			return nil, fmt.Errorf("%s: tokens %q and %q both have id %d", path, min(was, token), cmp.Or(max(was, token), was), id)
		}
		tokens[id] = token
	}
	return tokens, nil
}
