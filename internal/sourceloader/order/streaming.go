package order

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// indexBytes is above the size of an index up to the end of its first shard.
const indexBytes = 1 << 20

// elsewhere ends what is said of a dataset that another format has to take the place of.
const elsewhere = ` (docs/file-formats.md, "Other formats")`

// chunkName is that of a file of samples which LitData writes.
var chunkName = regexp.MustCompile(`^chunk-\d+-\d+(-u\w+)?(\.\w+)?\.bin$`)

// noChunk refuses the chunks of a LitData dataset, whose names are those that halves of Megatron's pairs may have: without
// the other half, which lies next to it, they are none.
func noChunk(ctx context.Context, st store.Store, src *jobspec.Source, objects []store.Object) error {
	at := slices.IndexFunc(objects, func(o store.Object) bool { return chunkName.MatchString(path.Base(o.URI)) })
	if at < 0 || src.Format != "" && src.Format != formats.Megatron {
		return nil
	}
	uri := objects[at].URI
	if _, err := st.Stat(ctx, strings.TrimSuffix(uri, ".bin")+".idx"); !errors.Is(err, store.ErrNotExist) {
		return err
	}
	return fault.Userf("%s is a chunk of a LitData dataset, which is not read: write its samples as Parquet"+elsewhere, uri)
}

// noIndex refuses the index of a MosaicML Streaming or LitData dataset, which is valid JSON but
// not data: its shards are next to it, and may not be in the listing.
func noIndex(ctx context.Context, st store.Store, objects []store.Object) error {
	for _, o := range objects {
		if path.Base(o.URI) != "index.json" {
			continue
		}
		h, err := st.Open(ctx, o)
		if err != nil {
			return err
		}
		shard, chunk := firstShard(io.NewSectionReader(h, 0, min(o.Size, indexBytes)))
		if err := h.Close(); err != nil {
			return err
		}
		switch {
		case path.Ext(chunk) == ".parquet":
			return fault.Userf("%s is the index of a LitData dataset, not data; its chunks are Parquet: name only them, such as %s/*.parquet", o.URI, path.Dir(o.URI))
		case chunk != "":
			return fault.Userf("%s is the index of a LitData dataset, whose chunks (%s) are not read: write its samples as Parquet"+elsewhere, o.URI, chunk)
		case shard.Raw.Basename == "":
		case shard.Format == "json":
			return fault.Userf("%s is the index of a MosaicML Streaming dataset, not data; its shards hold JSON Lines: name only them, with `format: jsonl`, such as %s/shard.*.json",
				o.URI, path.Dir(o.URI))
		default:
			return fault.Userf("%s is the index of a MosaicML Streaming dataset, whose shards (%s) are not read: write its samples as Parquet or JSON Lines"+elsewhere,
				o.URI, shard.Format)
		}
	}
	return nil
}

// streamingShard is the part of a shard's index entry that is needed here.
type streamingShard struct {
	Format string `json:"format"` // mds, json, csv, tsv, xsv
	Raw    struct {
		Basename string `json:"basename"`
	} `json:"raw_data"`
}

// firstShard reads the first shard of an index, or the name of its first chunk, and no more; other files have neither.
func firstShard(r io.Reader) (shard streamingShard, chunk string) {
	d := json.NewDecoder(r)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return shard, ""
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return shard, ""
		}
		var first any
		var entry struct {
			Filename string `json:"filename"`
		}
		switch key {
		case "shards":
			first = &shard
		case "chunks":
			first = &entry
		default:
			var other json.RawMessage
			if d.Decode(&other) != nil {
				return shard, ""
			}
			continue
		}
		if t, err := d.Token(); err == nil && t == json.Delim('[') && d.More() && d.Decode(first) != nil {
			return streamingShard{}, ""
		}
		return shard, entry.Filename
	}
	return shard, ""
}
