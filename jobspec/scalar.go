package jobspec

import (
	"errors"
	"fmt"
	"math/big"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// expand replaces ${VAR} and ${VAR:-default} in s by the environment's values;
// $$ stands for one dollar sign, any other $ for itself. What a variable holds
// is not expanded again. As in a shell, :- also takes the default for a
// variable that is set but empty. Without an env variables are errVariable.
func expand(s string, env func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String(), nil
		}
		b.WriteString(s[:i])
		s = s[i+1:]
		switch s[0] {
		case '$':
			b.WriteByte('$')
			s = s[1:]
		case '{':
			inside, rest, ok := strings.Cut(s[1:], "}")
			if !ok {
				return "", fmt.Errorf("${%s has no closing brace", shorten(inside))
			}
			value, err := lookup(inside, env)
			if err != nil {
				return "", err
			}
			b.WriteString(value)
			s = rest
		default:
			b.WriteByte('$')
		}
	}
}

// errVariable is the error of a variable where there are none.
var errVariable = errors.New("it has a ${variable}, which would be one of the service's own")

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func lookup(inside string, env func(string) (string, bool)) (string, error) {
	if env == nil {
		return "", errVariable
	}
	name, def, hasDefault := strings.Cut(inside, ":-")
	if !variable.MatchString(name) {
		return "", fmt.Errorf("${%s} names no variable", shorten(inside))
	}
	value, set := env(name)
	switch {
	case set && (value != "" || !hasDefault):
	case hasDefault:
		value = def
	default:
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	if !utf8.ValidString(value) {
		return "", fmt.Errorf("the environment variable %s is not UTF-8", name)
	}
	return value, nil
}

// escapeDollars undoes expand: expand(escapeDollars(s)) is s.
func escapeDollars(s string) string {
	if !strings.Contains(s, "$$") && !strings.Contains(s, "${") {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		b.WriteByte(s[i])
		if s[i] == '$' && i+1 < len(s) && (s[i+1] == '$' || s[i+1] == '{') {
			b.WriteByte('$')
		}
	}
	return b.String()
}

func systemEnv(name string) (string, bool) { return os.LookupEnv(name) }

// Sizes are written with decimal or binary units. Two digits of exponent and
// forty digits are far more than any count here has and bound the arithmetic.
var sized = regexp.MustCompile(`^([+-]?)([0-9][0-9_]{0,40})(?:\.([0-9]{1,20}))?(?:[eE]\+?([0-9]{1,2}))?[ ]?([A-Za-z]{0,3})$`)

var units = map[string]int64{
	"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12,
	"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40,
}

// parseSize reads a whole number such as 4096, 1_000, 1e6, 100k, 1.5Ki or,
// with bytes, 64MiB and 64mb. It fails on what is no whole number.
func parseSize(s string, bytes bool) (*big.Int, bool) {
	if v, ok := new(big.Int), strings.HasPrefix(s, "0x"); ok && len(s) <= 18 {
		return v.SetString(s[2:], 16)
	}
	m := sized.FindStringSubmatch(s)
	if m == nil {
		return nil, false
	}
	unit := strings.ToLower(m[5])
	if bytes {
		unit = strings.TrimSuffix(unit, "b")
	}
	factor, ok := units[unit]
	if !ok {
		return nil, false
	}
	v, ok := new(big.Int).SetString(strings.ReplaceAll(m[2], "_", "")+m[3], 10)
	if !ok {
		return nil, false
	}
	exponent, _ := strconv.Atoi(m[4]) // at most two digits, or none: 0
	v.Mul(v, power10(exponent)).Mul(v, big.NewInt(factor))
	v, rest := v.QuoRem(v, power10(len(m[3])), new(big.Int))
	if m[1] == "-" {
		v.Neg(v)
	}
	return v, rest.Sign() == 0
}

func power10(n int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

// parseNumber reads a decimal number. NaN and the infinities are read as such
// so that the finding can say what they are.
func parseNumber(s string) (float64, bool) {
	s = strings.ReplaceAll(s, "_", "")
	switch strings.ToLower(s) {
	case ".nan", ".inf", "-.inf", "+.inf":
		s = strings.Replace(s, ".", "", 1)
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

func parseFlag(s string) (value, ok bool) {
	switch strings.ToLower(s) {
	case "true", "yes", "on":
		return true, true
	case "false", "no", "off":
		return false, true
	}
	return false, false
}

// sizeText prints bytes in the largest binary unit that loses nothing.
func sizeText(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// ParseBytes reads a number of bytes as a spec has them: 64MiB, 1e6, 100k.
func ParseBytes(s string) (int64, error) {
	n, ok := parseSize(strings.TrimSpace(s), true)
	if !ok || n.Sign() < 0 || !n.IsInt64() || n.Int64() > maxBytes {
		return 0, fmt.Errorf("%q is not a number of bytes; write one such as 64MiB", s)
	}
	return n.Int64(), nil
}
