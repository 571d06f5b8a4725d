package transform

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// typeOf is the type of a column as its file has it; the zero Type if that is not known.
func typeOf(rec *format.Record, column int) format.Type {
	if column < len(rec.Types) {
		return rec.Types[column]
	}
	return format.Type{}
}

// inColumn adds the name of a column to what is wrong with its value, and its type if the file has one.
func inColumn(rec *format.Record, column int, path string, err error) error {
	if t := typeOf(rec, column); t.Name != "" {
		return fmt.Errorf("column %q (%s): %w", path, t.Name, err)
	}
	return fmt.Errorf("column %q: %w", path, err)
}

// appendText appends a value as text: null as nothing, numbers and bools in
// canonical form, the elements of a list with a line break between. Errors
// are of class fault.User.
func appendText(dst []byte, v *format.Value) ([]byte, error) {
	switch v.Kind {
	case format.Bytes:
		if err := checkUTF8(v.Bytes); err != nil {
			return dst, err
		}
		return append(dst, v.Bytes...), nil
	case format.Tokens:
		if len(v.Tokens) == 0 {
			return dst, nil // an empty list of whatever
		}
		return dst, fault.Userf("token ids are not text; use a tokens step for them")
	case format.List:
		for i := range v.List {
			if i > 0 {
				dst = append(dst, '\n')
			}
			var err error
			if dst, err = appendText(dst, &v.List[i]); err != nil {
				return dst, err
			}
		}
		return dst, nil
	}
	return appendScalar(dst, v)
}

func checkUTF8(b []byte) error {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return fault.Userf("byte %d (0x%02x) is not UTF-8; text must be UTF-8", i, b[i])
		}
		i += n
	}
	return nil
}

// appendScalar appends a string, number, bool or null.
func appendScalar(dst []byte, v *format.Value) ([]byte, error) {
	switch v.Kind {
	case format.Null:
		return dst, nil
	case format.String, format.Bytes:
		return append(dst, v.Bytes...), nil
	case format.Int:
		return strconv.AppendInt(dst, v.Int, 10), nil
	case format.Float:
		return appendFloat(dst, v.Float), nil
	case format.Bool:
		return strconv.AppendBool(dst, v.Int != 0), nil
	}
	return dst, fault.Userf("a value of kind %d cannot be written as text", v.Kind)
}

// appendFloat appends the shortest text that reads back as f, with an exponent
// for the very small and the very large only. 1.0 is "1".
func appendFloat(dst []byte, f float64) []byte {
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}

// appendIDs appends token ids: tokens directly, ints of a list, nothing for
// null. Errors are of class fault.User.
func appendIDs(dst []int32, v *format.Value) ([]int32, error) {
	switch v.Kind {
	case format.Null:
		return dst, nil
	case format.Tokens:
		if i := firstNegative(v.Tokens); i >= 0 {
			return dst, idError(i, int64(v.Tokens[i]))
		}
		return append(dst, v.Tokens...), nil
	case format.List:
		for i := range v.List {
			item := &v.List[i]
			if item.Kind != format.Int {
				return dst, fault.Userf("element %d is not an integer; token ids are integers from 0 to %d", i, math.MaxInt32)
			}
			if item.Int < 0 || item.Int > math.MaxInt32 {
				return dst, idError(i, item.Int)
			}
			dst = append(dst, int32(item.Int))
		}
		return dst, nil
	}
	return dst, fault.Userf("no token ids: a tokens step takes a list of integers")
}

// firstNegative is the place of the first negative number, -1 if there is none, as nearly always: so sixteen
// are looked at at once.
func firstNegative(ids []int32) int {
	at := 0
	for ; at+16 <= len(ids); at += 16 {
		of := (*[16]int32)(ids[at:])
		if of[0]|of[1]|of[2]|of[3]|of[4]|of[5]|of[6]|of[7]|of[8]|of[9]|of[10]|of[11]|of[12]|of[13]|of[14]|of[15] < 0 {
			break
		}
	}
	for i, id := range ids[at:] {
		if id < 0 {
			return at + i
		}
	}
	return -1
}

func idError(i int, id int64) error {
	return fault.Userf("element %d is %d; token ids are 0 to %d", i, id, math.MaxInt32)
}

// extra returns a kept value as bytes: nil for null, a string or bytes
// directly, and numbers and bools as text in scratch, which is returned too.
func extra(scratch []byte, v *format.Value) (value, newScratch []byte, err error) {
	switch v.Kind {
	case format.Null:
		return nil, scratch, nil
	case format.String, format.Bytes:
		if v.Bytes == nil {
			return []byte{}, scratch, nil // empty is not null
		}
		return v.Bytes, scratch, nil
	case format.Tokens, format.List:
		return nil, scratch, fault.Userf("a list cannot be kept; keep a single value")
	}
	start := len(scratch)
	scratch, err = appendScalar(scratch, v)
	return slices.Clip(scratch[start:]), scratch, err
}
