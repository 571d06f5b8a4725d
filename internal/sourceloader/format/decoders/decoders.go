// Package decoders is the table of all decoders: it finds the one for the name in
// a job spec, or for a file.
//
// It is the only package that knows more than one of them. It never reads a file.
package decoders

import (
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/arrow"
	"github.com/millrace-data/millrace/internal/sourceloader/format/files"
	"github.com/millrace-data/millrace/internal/sourceloader/format/json"
	"github.com/millrace-data/millrace/internal/sourceloader/format/megatron"
	"github.com/millrace-data/millrace/internal/sourceloader/format/parquet"
	"github.com/millrace-data/millrace/internal/sourceloader/format/tar"
	"github.com/millrace-data/millrace/internal/sourceloader/format/text"
)

// All returns a decoder for each of formats.Inputs.
func All() []format.Format {
	return []format.Format{
		parquet.Format{}, json.Lines{}, json.Format{}, tar.Format{}, megatron.Format{}, arrow.Format{}, text.Format{}, files.Format{},
	}
}

// ByName returns the format that a job spec calls name.
func ByName(name string) (format.Format, error) {
	for _, f := range All() {
		if f.Name() == name {
			return f, nil
		}
	}
	names, hint := formats.InputNames(), ""
	if near := didyoumean.Nearest(name, names); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return nil, fault.Userf("format %q is not known (valid: %s)%s", name, strings.Join(names, ", "), hint)
}

// ByPath returns the format that the file's extension stands for. Case does not
// count.
func ByPath(uri string) (format.Format, error) {
	if in, ok := formats.InputOf(uri); ok {
		return ByName(in.Name)
	}
	if _, err := format.Foreign(uri); err != nil {
		return nil, err
	}
	return nil, fault.Userf("%s: its extension is not that of a format (known: %s): set the source's format", uri, strings.Join(formats.Extensions(), " "))
}
