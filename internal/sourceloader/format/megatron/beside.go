package megatron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// tokensColumn is the column of the dataset itself. Every other column is a dataset beside it.
const tokensColumn = "tokens"

// textKey is what Megatron-LM's preprocess_data.py calls the dataset of the texts of a
// file: it writes one such for each key of the records, STEM_KEY_document.
const textKey = "_text_document"

func prefixOf(uri string) string {
	return strings.TrimSuffix(strings.TrimSuffix(uri, ".bin"), ".idx")
}

// beside is the prefix of the dataset with the values of a column: STEM_COLUMN_document
// for STEM_text_document, else PREFIX_COLUMN.
func beside(prefix, column string) string {
	if stem, ok := strings.CutSuffix(prefix, textKey); ok {
		return stem + "_" + column + "_document"
	}
	return prefix + "_" + column
}

// datasets are the prefixes of the columns' datasets: the tokens' first, whether they are
// among the columns or not, and each once.
func datasets(uri string, columns []string) []string {
	prefixes := []string{prefixOf(uri)}
	for _, column := range columns {
		if at := datasetOf(uri, column); !slices.Contains(prefixes, at) {
			prefixes = append(prefixes, at)
		}
	}
	return prefixes
}

func datasetOf(uri, column string) string {
	if column == tokensColumn {
		return prefixOf(uri)
	}
	return beside(prefixOf(uri), column)
}

// openAll opens the datasets of the columns, which have as many documents as that of the
// tokens.
func openAll(ctx context.Context, st store.Store, obj store.Object, columns []string) (pairs []*pair, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(pairs))
			pairs = nil
		}
	}()
	main, err := openPair(ctx, st, obj)
	if err != nil {
		return nil, err
	}
	pairs = append(pairs, main)
	for _, column := range columns {
		prefix := datasetOf(obj.URI, column)
		if slices.ContainsFunc(pairs, func(p *pair) bool { return prefixOf(p.uri) == prefix }) {
			continue
		}
		p, err := openBeside(ctx, st, obj, prefix, column)
		if err != nil {
			return pairs, err
		}
		if pairs = append(pairs, p); p.documents != main.documents {
			return pairs, fault.Userf("%s has %d documents and %s, its column %q, %d: write both from the same records, in the same order",
				main.uri, main.documents, p.uri, column, p.documents)
		}
	}
	return pairs, nil
}

// openBeside opens the dataset of a column that is not the tokens'.
func openBeside(ctx context.Context, st store.Store, obj store.Object, prefix, column string) (*pair, error) {
	idx, err := st.Stat(ctx, prefix+".idx")
	if errors.Is(err, store.ErrNotExist) {
		return nil, fault.Userf("%s: the file itself has the column %q only; column %q is read from %s.idx and .bin beside it: %w; name one of these, or write that pair, with a value for each token",
			obj.URI, tokensColumn, column, prefix, store.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	p, err := openPair(ctx, st, idx)
	if err != nil {
		return nil, fmt.Errorf("%s: opening its column %q: %w", obj.URI, column, err)
	}
	return p, nil
}

func closeAll(pairs []*pair) (err error) {
	for _, p := range pairs {
		err = errors.Join(err, p.Close())
	}
	return err
}
