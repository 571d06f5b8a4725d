package order

import (
	"context"
	"encoding/json"
	"io"
	"path"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// indexBytes is above the size of an index up to the end of its first shard.
const indexBytes = 1 << 20

// noIndex refuses the index of a MosaicML Streaming dataset, which is valid JSON but
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
		shard := firstShard(io.NewSectionReader(h, 0, min(o.Size, indexBytes)))
		if err := h.Close(); err != nil {
			return err
		}
		switch {
		case shard.Raw.Basename == "":
		case shard.Format == "json":
			return fault.Userf("%s is the index of a MosaicML Streaming dataset, not data; its shards hold JSON Lines: name only them, with `format: jsonl`, such as %s/shard.*.json",
				o.URI, path.Dir(o.URI))
		default:
			return fault.Userf("%s is the index of a MosaicML Streaming dataset, whose shards (%s) are not read: write its samples as Parquet or JSON Lines (docs/file-formats.md, \"Other formats\")",
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

// firstShard reads the first shard of an index, and no more; other files have none.
func firstShard(r io.Reader) (shard streamingShard) {
	d := json.NewDecoder(r)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return shard
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return shard
		}
		if key != "shards" {
			var other json.RawMessage
			if d.Decode(&other) != nil {
				return shard
			}
			continue
		}
		if t, err := d.Token(); err == nil && t == json.Delim('[') && d.More() && d.Decode(&shard) != nil {
			return streamingShard{}
		}
		return shard
	}
	return shard
}
