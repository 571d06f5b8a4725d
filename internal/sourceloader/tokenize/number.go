package tokenize

import (
	"fmt"
	"math"
	"strconv"
)

// libraryNumber reads a JSON number as the tokenizers library does (serde_json without float_roundtrip): up to 64 bits
// of digits, times or through a power of ten, which is often one bit off the nearest number. By that bit the
// library decides between divisions of a text that are equally good.
func libraryNumber(text string) (float64, error) {
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		return 0, err
	}
	var digits uint64
	exponent, fraction, full, negative := 0, false, false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '-':
			negative = true
		case c == '.':
			fraction = true
		case c == 'e' || c == 'E':
			given, err := strconv.Atoi(text[i+1:])
			if err != nil {
				return 0, err
			}
			return tenfold(digits, exponent+given, negative)
		default:
			full = full || digits > (math.MaxUint64-uint64(c-'0'))/10
			switch {
			case !full && fraction:
				digits, exponent = 10*digits+uint64(c-'0'), exponent-1
			case !full:
				digits = 10*digits + uint64(c-'0')
			case !fraction:
				exponent++
			}
		}
	}
	return tenfold(digits, exponent, negative)
}

// tenfold is digits times a power of ten.
func tenfold(digits uint64, exponent int, negative bool) (float64, error) {
	f := float64(digits)
	for ; exponent < -308 && f != 0; exponent += 308 {
		f /= 1e308
	}
	switch {
	case f == 0:
	case exponent > 308:
		return 0, fmt.Errorf("the number is too large")
	case exponent >= 0:
		f *= powersOfTen[exponent]
	default:
		f /= powersOfTen[-exponent]
	}
	if negative {
		f = -f
	}
	return f, nil
}

// powersOfTen are the nearest numbers to 10^0 to 10^308.
var powersOfTen = func() (powers [309]float64) {
	for i := range powers {
		powers[i], _ = strconv.ParseFloat("1e"+strconv.Itoa(i), 64) // none fails
	}
	return powers
}()
