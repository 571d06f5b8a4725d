package tokenize

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/regular"
)

// encodingSpec is the published data of an encoding, without its ranks.
type encodingSpec struct {
	name    string
	split   splitter
	ranks   int // lines of the rank file
	special map[string]int32
	vocab   int    // every id is below it
	sha256  string // of the rank file, in hex
}

const endOfText = "<|endoftext|>"

var encodingSpecs = []encodingSpec{
	{"r50k_base", splitR50K, 50256, map[string]int32{endOfText: 50256}, 50257,
		"306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"},
	{"p50k_base", splitR50K, 50280, map[string]int32{endOfText: 50256}, 50281,
		"94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"},
	{"cl100k_base", splitCL100K, 100256, map[string]int32{endOfText: 100257,
		"<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
		"<|endofprompt|>": 100276}, 100277,
		"223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"},
	{"o200k_base", splitO200K, 199998, map[string]int32{endOfText: 199999,
		"<|endofprompt|>": 200018}, 200019,
		"446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"},
}

// Names returns the names of all encodings, bytes first.
func Names() []string {
	names := []string{bytesName}
	for _, s := range encodingSpecs {
		names = append(names, s.name)
	}
	return names
}

// specOf finds an encoding by name.
func specOf(name string) (encodingSpec, error) {
	for _, s := range encodingSpecs {
		if s.name == name {
			return s, nil
		}
	}
	hint := ""
	if near := didyoumean.Nearest(name, Names()); near != "" {
		hint = " did you mean " + near + "?"
	}
	return encodingSpec{}, fault.Userf("unknown encoding %q;%s valid are %s",
		name, hint, strings.Join(Names(), ", "))
}

// maxRankFile bounds the size of a rank file. The largest published one has 3.6
// MB; a bigger one is something else, such as a checkpoint named by mistake.
const maxRankFile = 32 << 20

// readRankFile reads the whole file; its errors say how to get one.
func readRankFile(s encodingSpec, path string) ([]byte, error) {
	get := func(what string) error {
		return fault.Userf("encoding %s needs its rank file %s.tiktoken, %s; rank files are not shipped "+
			"with Millrace: take %[1]s.tiktoken from the tiktoken distribution and give its path as ranks",
			s.name, s.name, what)
	}
	if path == "" {
		return nil, get("and none is given")
	}
	f, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, get(path + " does not exist")
	}
	if err != nil {
		return nil, fault.Userf("opening the rank file of encoding %s: %w", s.name, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRankFile+1))
	if err != nil {
		return nil, fault.Userf("reading the rank file of encoding %s: %w", s.name, err)
	}
	if len(data) > maxRankFile {
		return nil, fault.Userf("%s is not a rank file of encoding %s: it is larger than %d MiB",
			path, s.name, maxRankFile>>20)
	}
	return data, nil
}

// checkDigest verifies that a rank file is the one published under the
// encoding's name or, if the caller declared another digest, that one. A swapped rank or
// a flipped bit leaves a readable file that gives other tokens.
func checkDigest(s encodingSpec, path, declared string, digest [sha256.Size]byte) error {
	got := hex.EncodeToString(digest[:])
	switch {
	case declared != "" && got != declared:
		return fault.Userf("%s is not the rank file that is declared: its SHA-256 is %s, declared is sha256: %s; "+
			"restore that file, or declare this one", path, got, declared)
	case declared == "" && got != s.sha256:
		return fault.Userf("%s is not the published rank file of encoding %s: its SHA-256 is %s, that of the published one is %s; "+
			"get %[2]s.tiktoken again from the tiktoken distribution or, for a custom vocabulary, set sha256: %[3]s next to ranks",
			path, s.name, got, s.sha256)
	}
	return nil
}

// parseRanks reads the lines "base64-of-token rank" and returns the tokens by
// rank, nil for a rank not in use. Empty lines are skipped.
func parseRanks(s encodingSpec, path string, data []byte) ([][]byte, error) {
	tokens := make([][]byte, s.vocab)
	lines := make([]int, s.vocab) // the line of each rank, for messages
	ids := make(map[string]int, s.ranks)
	text := make([]byte, 0, len(data)) // all tokens joined: they are shorter than their base64
	at := 0
	for line := range bytes.Lines(data) {
		at++
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			continue
		}
		longer, rank, err := parseRank(s, text, line)
		if err != nil {
			return nil, fault.Userf("%s:%d: %w", path, at, err)
		}
		token := longer[len(text):]
		text = longer
		if lines[rank] != 0 {
			return nil, fault.Userf("%s:%d: rank %d is given twice, first in line %d", path, at, rank, lines[rank])
		}
		if first, ok := ids[string(token)]; ok {
			return nil, fault.Userf("%s:%d: token %q is given twice, first in line %d with rank %d",
				path, at, token, lines[first], first)
		}
		tokens[rank], lines[rank], ids[string(token)] = token, at, rank
	}
	return tokens, checkRanks(s, path, tokens, len(ids))
}

// parseRank reads one line and appends its token to dst.
func parseRank(s encodingSpec, dst, line []byte) (text []byte, rank int, err error) {
	token, number, found := bytes.Cut(line, []byte(" "))
	if !found {
		return nil, 0, fmt.Errorf("want a token in base64, one space and its rank, such as \"IQ== 0\", not %.40q", line)
	}
	text, err = base64.StdEncoding.AppendDecode(dst, token)
	if err != nil || len(text) == len(dst) {
		return nil, 0, fmt.Errorf("%.40q is not a token in base64; a valid line is \"IQ== 0\"", token)
	}
	rank, err = strconv.Atoi(string(number))
	if err != nil || rank < 0 {
		return nil, 0, fmt.Errorf("%.40q is not a rank; want a whole number from 0 on", number)
	}
	if rank >= s.vocab || s.isSpecial(int32(rank)) {
		return nil, 0, fmt.Errorf("rank %d is not a token of %s, which has %d ranks; is this another encoding's file?",
			rank, s.name, s.ranks)
	}
	return text, rank, nil
}

func (s encodingSpec) isSpecial(id int32) bool {
	for _, special := range s.special {
		if special == id {
			return true
		}
	}
	return false
}

// checkRanks verifies that the file is complete and of this encoding.
func checkRanks(s encodingSpec, path string, tokens [][]byte, n int) error {
	if n != s.ranks {
		return fault.Userf("%s has %d ranks, but %s has %d; want the file %s.tiktoken of the tiktoken distribution, whole",
			path, n, s.name, s.ranks, s.name)
	}
	var single [256]bool
	for _, t := range tokens {
		if len(t) == 1 {
			single[t[0]] = true
		}
	}
	for b, ok := range single {
		if !ok {
			return fault.Userf("%s has no rank for the single byte 0x%02X; every byte needs one, "+
				"or some text has no encoding", path, b)
		}
	}
	return nil
}
