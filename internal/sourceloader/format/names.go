package format

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// maxListedColumns keeps an error message on a few lines: files of a thousand
// columns exist.
const maxListedColumns = 24

// MissingColumn is the error of a column that a file's schema rules out.
type MissingColumn struct {
	Name string
	Have []string // columns of the file
}

// NoSuchColumn is a MissingColumn of class fault.User.
func NoSuchColumn(name string, have []string) error {
	return fault.As(fault.User, &MissingColumn{name, have})
}

func (m *MissingColumn) Error() string {
	if len(m.Have) == 0 {
		return fmt.Sprintf("there is no column %q: the file has no columns", m.Name)
	}
	if near := didyoumean.Nearest(m.Name, m.Have); near != "" {
		return fmt.Sprintf("there is no column %q; did you mean %q? The file has %s", m.Name, near, ListNames(m.Have))
	}
	return fmt.Sprintf("there is no column %q; the file has %s", m.Name, ListNames(m.Have))
}

// WrongPath is the error of a record in which a value on the path of a column is of another kind than the path says.
type WrongPath struct {
	Name string // of the column
	Why  string // and what to do
}

func (w *WrongPath) Error() string { return w.Why }

// ListNames joins names for a message, the first 24 of them.
func ListNames(names []string) string {
	if more := len(names) - maxListedColumns; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListedColumns], ", "), more)
	}
	return strings.Join(names, ", ")
}

// OnlyColumns checks the columns asked for against those that a format has.
func OnlyColumns(obj store.Object, asked []string, has ...string) error {
	for _, column := range asked {
		if !slices.Contains(has, column) {
			return fmt.Errorf("reading %s: %w", obj.URI, NoSuchColumn(column, has))
		}
	}
	return nil
}

// InvalidUTF8 returns the index of the first byte of b that is not UTF-8.
func InvalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return len(b)
}
