package tokenize

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer reads a normalizer.
func (r *fileReader) normalizer(path string, raw json.RawMessage) error {
	kind, err := kindOf(path, raw)
	if err != nil {
		return err
	}
	add := func(n normalizer) error {
		r.puts("", false)
		r.file.normalize = append(r.file.normalize, n)
		return nil
	}
	switch kind {
	case "":
		return nil
	case "Sequence":
		var s struct {
			Type        string            `json:"type"`
			Normalizers []json.RawMessage `json:"normalizers"`
		}
		if err := decode(path, raw, &s); err != nil {
			return err
		}
		for i, n := range s.Normalizers {
			if err := r.normalizer(fmt.Sprintf("%s.normalizers[%d]", path, i), n); err != nil {
				return err
			}
		}
		return nil
	case "NFC":
		return add(form{norm.NFC, true}.normalizer())
	case "NFD":
		return add(form{norm.NFD, false}.normalizer())
	case "NFKC":
		return add(form{norm.NFKC, true}.normalizer())
	case "NFKD":
		return add(form{norm.NFKD, false}.normalizer())
	case "Lowercase":
		return add(lowercase)
	}
	return r.otherNormalizer(path, kind, raw)
}

// normalizerJSON has the fields of all normalizers.
type normalizerJSON struct {
	Type               string       `json:"type"`
	Prepend            string       `json:"prepend"`
	Pattern            *filePattern `json:"pattern"`
	Content            string       `json:"content"`
	StripLeft          bool         `json:"strip_left"`
	StripRight         bool         `json:"strip_right"`
	CleanText          bool         `json:"clean_text"`
	HandleChineseChars bool         `json:"handle_chinese_chars"`
	StripAccents       *bool        `json:"strip_accents"`
	Lowercase          bool         `json:"lowercase"`
	PrecompiledCharmap base64Text   `json:"precompiled_charsmap"`
}

// otherNormalizer reads those that have parameters, or leave characters out.
func (r *fileReader) otherNormalizer(path, kind string, raw json.RawMessage) error {
	var p normalizerJSON
	if err := decode(path, raw, &p); err != nil {
		return err
	}
	add := func(steps ...normalizer) error {
		r.file.normalize = append(r.file.normalize, steps...)
		return nil
	}
	switch kind {
	case "Prepend":
		if p.Prepend == "" {
			return fmt.Errorf("%s.prepend is empty: leave the Prepend out", path)
		}
		r.file.spaced = true
		r.puts(p.Prepend, false)
		return add(prepend(p.Prepend))
	case "Replace":
		find, err := r.finder(path+".pattern", p.Pattern)
		if err != nil {
			return err
		}
		r.deletes = r.deletes || p.Content == ""
		r.puts(p.Content, p.Pattern.Regex != nil || utf8.RuneCountInString(*p.Pattern.String) > 1)
		return add(replace(find, p.Content))
	case "Strip":
		r.deletes = r.deletes || p.StripLeft
		return add(strip(p.StripLeft, p.StripRight))
	}
	r.puts("", false)
	switch kind {
	case "Precompiled": // a character that it leaves out at the beginning still counts as the first
		m, err := newCharsmap(p.PrecompiledCharmap)
		if err != nil {
			return fmt.Errorf("%s.precompiled_charsmap %w", path, err)
		}
		return add(precompiled(m))
	case "StripAccents":
		add(without(namedSets()["combining"]))
	case "Nmt":
		add(nmt)
	case "BertNormalizer":
		add(p.bert()...)
	default:
		return unsupported(path, kind, "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend", "Replace", "Nmt", "BertNormalizer", "Precompiled", "Sequence")
	}
	r.deletes = true
	return nil
}

// bert is the steps of a BertNormalizer.
func (p *normalizerJSON) bert() (steps []normalizer) {
	if p.CleanText {
		steps = append(steps, cleanText())
	}
	if p.HandleChineseChars {
		steps = append(steps, spaceChinese)
	}
	if p.StripAccents == nil && p.Lowercase || p.StripAccents != nil && *p.StripAccents {
		steps = append(steps, form{norm.NFD, false}.normalizer(), without(namedSets()["nonspacing"]))
	}
	if p.Lowercase {
		steps = append(steps, lowercase)
	}
	return steps
}

// puts notes what a normalizer may put at the beginning of a text: in the place of several characters, or behind a
// normalizer that did. To the library the first character is not the text's first one then.
func (r *fileReader) puts(content string, several bool) {
	if several || len(r.put) > 0 {
		r.put = append(r.put, content)
	}
}

// base64Text is bytes in base64.
type base64Text []byte

// UnmarshalJSON reads them.
func (b *base64Text) UnmarshalJSON(raw []byte) (err error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	*b, err = base64.StdEncoding.DecodeString(s)
	return err
}

// filePattern is {"String": ..} or {"Regex": ..}.
type filePattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

// The patterns that have a splitter of their own, which is faster.
const (
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternCL   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternO200 = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// splitters do what patterns say, which others are interpreted for.
var splitters = map[string]splitter{patternGPT2: splitR50K, patternCL: splitCL100K, patternQwen: splitQwen2, patternO200: splitO200K}

func (r *fileReader) finder(path string, f *filePattern) (finderFunc, error) {
	switch {
	case f == nil || (f.String == nil) == (f.Regex == nil):
		return nil, fmt.Errorf("%s is neither a String nor a Regex", path)
	case f.String != nil && *f.String == "":
		return nil, fmt.Errorf("%s.String is empty", path)
	case f.String != nil:
		return findText(*f.String), nil
	}
	if split := splitters[*f.Regex]; split != nil {
		return findSplitter(split), nil
	}
	p, err := parsePattern(*f.Regex)
	if err != nil {
		return nil, fmt.Errorf("%s.Regex has what is not supported here: %w", path, err)
	}
	if p.revised {
		r.revise(3)
	}
	return p.find, nil
}

var behaviours = map[string]behaviour{"Isolated": isolated, "Removed": removed, "MergedWithPrevious": previous, "MergedWithNext": following, "Contiguous": contiguous}

// preTokenizer reads a pre-tokenizer.
func (r *fileReader) preTokenizer(path string, raw json.RawMessage) error {
	kind, err := kindOf(path, raw)
	if err != nil || kind == "" {
		return err
	}
	if r.byteLevel {
		return fmt.Errorf("%s comes after a ByteLevel, which has to be the last", path)
	}
	if kind == "Sequence" {
		var s struct {
			Type          string            `json:"type"`
			Pretokenizers []json.RawMessage `json:"pretokenizers"`
		}
		if err := decode(path, raw, &s); err != nil {
			return err
		}
		for i, p := range s.Pretokenizers {
			if err := r.preTokenizer(fmt.Sprintf("%s.pretokenizers[%d]", path, i), p); err != nil {
				return err
			}
		}
		return nil
	}
	return r.onePreTokenizer(path, kind, raw)
}

func (r *fileReader) onePreTokenizer(path, kind string, raw json.RawMessage) error {
	p := preTokenizerJSON{UseRegex: true, Length: 5}
	if err := decode(path, raw, &p); err != nil {
		return err
	}
	how, known := isolated, true
	if p.Behavior != "" {
		how, known = behaviours[p.Behavior]
	}
	if !known {
		return fmt.Errorf("%s.behavior is %q", path, p.Behavior)
	}
	add := func(stages ...stage) { r.file.stages = append(r.file.stages, stages...) }
	sets := namedSets()
	switch kind {
	case "ByteLevel":
		r.byteLevel = true
		if p.AddPrefixSpace != nil && *p.AddPrefixSpace {
			add(stage{rewrite: prefixSpace})
			r.file.spaced = true
		}
		if p.UseRegex {
			add(stage{find: findSplitter(splitR50K)})
		}
	case "Split":
		find, err := r.finder(path+".pattern", p.Pattern)
		if err != nil {
			return err
		}
		add(stage{find: find, behaviour: how, invert: p.Invert})
	case "Digits":
		if how = contiguous; p.IndividualDigits {
			how = isolated
		}
		add(stage{find: findSet(sets["numeric"]), behaviour: how})
	case "Punctuation":
		add(stage{find: findSet(sets["punctuation"]), behaviour: how})
	case "UnicodeScripts":
		add(stage{find: findScript, behaviour: removed, invert: true})
	case "FixedLength":
		if p.Length < 1 {
			return fmt.Errorf("%s.length is %d, want 1 or more", path, p.Length)
		}
		add(stage{find: findLength(p.Length)})
	case "CharDelimiterSplit", "Delimiter":
		if utf8.RuneCountInString(p.Delimiter) != 1 {
			return fmt.Errorf("%s.delimiter is %q, want one character", path, p.Delimiter)
		}
		add(stage{find: findText(p.Delimiter), behaviour: removed})
	case "WhitespaceSplit":
		add(stage{find: findSet(sets["space"]), behaviour: removed})
	case "BertPreTokenizer":
		add(stage{find: findSet(sets["space"]), behaviour: removed}, stage{find: findSet(sets["punctuation"])})
	case "Whitespace":
		words, err := parsePatternWith(`\w+|[^\w\s]+`, sets["word"], sets["word"])
		if err != nil {
			return err
		}
		add(stage{find: words.find, behaviour: removed, invert: true})
	case "Metaspace":
		return r.metaspace(path, &p)
	default:
		return unsupported(path, kind, "ByteLevel", "Metaspace", "Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit", "UnicodeScripts", "FixedLength", "Sequence")
	}
	return nil
}

// preTokenizerJSON has the fields of all pre-tokenizers.
type preTokenizerJSON struct {
	Type             string       `json:"type"`
	AddPrefixSpace   *bool        `json:"add_prefix_space"`
	TrimOffsets      bool         `json:"trim_offsets"`
	UseRegex         bool         `json:"use_regex"`
	Pattern          *filePattern `json:"pattern"`
	Behavior         string       `json:"behavior"`
	Invert           bool         `json:"invert"`
	IndividualDigits bool         `json:"individual_digits"`
	Replacement      string       `json:"replacement"`
	PrependScheme    string       `json:"prepend_scheme"`
	Split            *bool        `json:"split"`
	StrRep           string       `json:"str_rep"`
	Delimiter        string       `json:"delimiter"`
	Length           int          `json:"length"`
}
