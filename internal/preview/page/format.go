package page

import (
	"fmt"
	"math"
	"strings"
)

// percent prints a part, with as many digits as small differences need.
func percent(v float64) string { return trim(fmt.Sprintf("%.2f", 100*v)) + " %" }

// factor prints a load over the mean one.
func factor(v float64) string { return trim(fmt.Sprintf("%.3f", v)) }

// count prints a number in thousands, millions or billions.
func count(v float64) string { return scaled(v, 1000, []string{"", "k", "M", "G", "T"}, "") }

// power prints a power of two.
func power(v int32) string { return scaled(float64(v), 1024, []string{"", "Ki", "Mi"}, "") }

// size prints bytes.
func size(v float64) string {
	return scaled(v, 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}, " ")
}

func scaled(v, base float64, units []string, space string) string {
	k := 0
	for math.Abs(v) >= base && k < len(units)-1 {
		v /= base
		k++
	}
	digits := 2
	switch {
	case k == 0 && v == math.Trunc(v), math.Abs(v) >= 100:
		digits = 0
	case math.Abs(v) >= 10:
		digits = 1
	}
	text := fmt.Sprintf("%.*f", digits, v)
	if digits > 0 {
		text = trim(text)
	}
	return text + strings.TrimRight(space+units[k], " ")
}

// trim takes zeros off the end of a number with a point.
func trim(text string) string { return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") }

// grouped prints a whole number with its thousands apart.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}
