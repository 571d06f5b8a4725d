package tokenize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/didyoumean"
)

// decode reads a part of the file, in which every field has to be known: a new one may
// change ids.
func decode(path string, raw json.RawMessage, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%s: something follows its JSON value", path)
	}
	return nil
}

// kindOf returns the type of a component, "" for null.
func kindOf(path string, raw json.RawMessage) (string, error) {
	if isNull(raw) {
		return "", nil
	}
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if head.Type == "" {
		return "", fmt.Errorf("%s has no type", path)
	}
	return head.Type, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// unsupported is an error for a component of a type that is not known.
func unsupported(path, kind string, known ...string) error {
	if near := didyoumean.Nearest(kind, known); near != "" {
		return fmt.Errorf("%s is of type %q, which is not supported; did you mean %s? Supported are %s", path, kind, near, strings.Join(known, ", "))
	}
	return fmt.Errorf("%s is of type %q, which is not supported; supported are %s", path, kind, strings.Join(known, ", "))
}

// checkText refuses what package json reads as U+FFFD, as the library does: bytes that are not UTF-8, and
// escapes of half a surrogate pair.
func checkText(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("the file is not UTF-8")
	}
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		unit := codeUnit(data[i:])
		if !utf16.IsSurrogate(unit) {
			i++
			continue
		}
		if utf16.DecodeRune(unit, codeUnit(data[i+6:])) == utf8.RuneError {
			return fmt.Errorf("the file has half a surrogate pair at byte %d, %s", i, data[i:i+6])
		}
		i += 11
	}
	return nil
}

// codeUnit is the one of an escape such as \ud83d with which data begins, or 0.
func codeUnit(data []byte) rune {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0
	}
	unit, _ := strconv.ParseUint(string(data[2:6]), 16, 16)
	return rune(unit)
}
