package columnar

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// MaxRows bounds the rows of a row group or record batch, so that a damaged
// count cannot make an endless loop of rows without bytes.
const MaxRows = 1<<31 - 1

// MaxDecimalScale is beyond every precision in use (38 and 76 digits).
const MaxDecimalScale = 1000

// ErrNullToken is the error of a list of tokens with a null in it.
var ErrNullToken = fault.Userf("the list of tokens has a null in it; token ids are integers")

// TokenRange is the error of a token id that is not a 32-bit integer.
func TokenRange(token int64) error {
	return fault.Userf("the token id %d is not within 32 bits (%d to %d)", token, math.MinInt32, math.MaxInt32)
}

// ColumnError adds the name of a column to an error.
func ColumnError(name string, err error) error { return fmt.Errorf("reading column %q: %w", name, err) }

// Guard turns a panic of a decoder, which a codec may raise on damaged input,
// into the file's error. It is deferred.
func Guard(err *error, kind string, obj store.Object) {
	if p := recover(); p != nil {
		*err = fault.Userf("the %s reader cannot read %s, which is damaged: %v", kind, obj.URI, p)
	}
}

// Chunks counts the chunks of a file, of which count reads what it needs. kind names the format
// in errors.
func Chunks(ctx context.Context, st store.Store, obj store.Object, kind string, count func(*input.File) (int, error)) (n int, err error) {
	defer Guard(&err, kind, obj)
	in, err := input.Open(ctx, st, obj)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	if n, err = count(in); err != nil {
		return 0, fmt.Errorf("reading %s: %w", obj.URI, err)
	}
	return n, nil
}

// BigEndian reads a two's complement number.
func BigEndian(b []byte) *big.Int {
	x := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return x
}

// DecimalText writes a decimal with all digits of its scale, which is not negative.
func DecimalText(x *big.Int, scale int) string {
	digits := new(big.Int).Abs(x).String()
	if more := scale + 1 - len(digits); more > 0 {
		digits = strings.Repeat("0", more) + digits
	}
	if scale > 0 {
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	if x.Sign() < 0 {
		digits = "-" + digits
	}
	return digits
}

// Float16 widens an IEEE 754 half.
func Float16(bits uint16) float64 {
	sign, exp, frac := 1.0, int(bits>>10&31), float64(bits&1023)
	if bits>>15 != 0 {
		sign = -1
	}
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}
