package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/preview"
)

type previewCmd struct {
	Job        string `arg:"" help:"Job spec (YAML)." type:"path"`
	Step       int64  `required:"" help:"Step to show, from 0." placeholder:"N"`
	Rank       string `help:"Only what these ranks get: indices such as dp=0,cp=1. Axes not named: all." placeholder:"AXIS=I,..."`
	Microbatch int    `help:"Only this microbatch of each dp index, from 0." default:"-1" placeholder:"M"`
	Tokens     int    `help:"Tokens shown at the beginning and at the end of each document." default:"8" placeholder:"K"`
	JSON       bool   `name:"json" help:"Print one JSON object, with all tokens."`
	beginFlags

	rank map[string]int
}

// Help is printed below the usage line.
func (*previewCmd) Help() string {
	return "Plans the job up to the step, as `millrace explain` does, reads its documents, and shows them row by row: the origin of each, its first and last tokens with their text, " +
		"and the loss and padding tokens of the row. No service is needed, and nothing is changed; " +
		"for a running job, millrace.peek shows the same batches in Python.\n\n" +
		"The line `content HEX` is the digest of the step's rows alone, for a whole step of documents without kept columns and images.\n\n" +
		"Example:\n  millrace preview job.yaml --step 0 --rank dp=1 --microbatch 0"
}

// Validate is called by kong: what it refuses is wrong usage.
func (c *previewCmd) Validate() (err error) {
	if err := cmp.Or(atLeast("--step", c.Step, 0), atLeast("--tokens", int64(c.Tokens), 0), c.check()); err != nil {
		return err
	}
	c.rank, err = parseRank(c.Rank)
	return err
}

func (c *previewCmd) Run(ctx context.Context, names extensions) error {
	job, err := load(names, c.Job)
	if err != nil {
		return err
	}
	j, err := c.open(ctx, names, job, c.Step)
	if err != nil {
		return err
	}
	progress := newCounter("planned", j.Start(), c.Step+1-j.Start())
	defer progress.end()
	p, err := j.Preview(ctx, preview.Query{Step: c.Step, Rank: c.rank, Microbatch: c.Microbatch}, progress.at)
	progress.end()
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(p)
	}
	fmt.Fprintf(stdout, "step %d of %s, mesh %s: %d rows of %d tokens\n", p.Step, job.Name, p.Mesh, p.Rows, p.RowTokens)
	if p.Content != "" {
		fmt.Fprintf(stdout, "content %s\n", p.Content)
	}
	slices.SortStableFunc(p.Documents, func(a, b preview.Document) int { return byDelivery(a.Sample, b.Sample) })
	for rest := p.Documents; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Row == rest[0].Row {
			n++
		}
		c.printRow(rest[:n], p.RowTokens)
		rest = rest[n:]
	}
	return nil
}

func (c *previewCmd) printRow(documents []preview.Document, room int32) {
	first, tokens, masked, images := &documents[0].Sample, int32(0), int32(0), false
	room *= max(first.Ranks, 1)
	ranks := fmt.Sprintf("dp=%d", first.DP)
	if first.Ranks > 0 {
		ranks = ranksOf(first)
	}
	for _, d := range documents {
		tokens += d.Tokens
		images = images || len(d.Images) > 0
		for k := 0; k+1 < len(d.Masked); k += 2 {
			masked += d.Masked[k+1] - d.Masked[k]
		}
	}
	loss := fmt.Sprintf("%d with loss", int(tokens-masked)-len(documents)) // the last token of a document has no next one
	if images {
		loss += " (less the images' placeholders)"
	}
	fmt.Fprintf(stdout, "\n%s microbatch %d, row %d: %s, %d tokens, %s, %d padding\n", ranks, first.Microbatch, first.Row,
		preview.Count(len(documents), "document"), tokens, loss, room-tokens)
	w := newTable(stdout)
	fmt.Fprintf(w, "offset\ttokens\tsource\tfile\trecord\tpiece\t\n")
	for i := range documents {
		d := &documents[i]
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t\n", d.Offset, d.Tokens, d.Source, d.File, recordOf(&d.Sample), pieceOf(&d.Sample))
	}
	w.Flush()
	for i := range documents {
		fmt.Fprintf(stdout, "  %d: %s\n", documents[i].Offset, shownIDs(documents[i].IDs, c.Tokens))
		if text := documents[i].Text; text != nil {
			fmt.Fprintf(stdout, "  %s  %s\n", strings.Repeat(" ", len(fmt.Sprint(documents[i].Offset))), shownText(*text, 6*c.Tokens))
		}
		if loss := lossShown(&documents[i], 6*c.Tokens); loss != "" {
			fmt.Fprintf(stdout, "  %s  loss on %s\n", strings.Repeat(" ", len(fmt.Sprint(documents[i].Offset))), loss)
		}
	}
}

// lossShown is what of a document's text carries loss, "" if all of it does or there is no text.
func lossShown(d *preview.Document, edge int) string {
	if d.Text != nil && len(d.Masked) > 0 && d.LossTexts == nil {
		return "nothing"
	}
	return shownParts(d.LossTexts, edge)
}

// shownIDs are the first and last ids of a document.
func shownIDs(ids []int32, edge int) string {
	if len(ids) <= 2*edge {
		return fmt.Sprint(ids)
	}
	a, b := fmt.Sprint(ids[:edge]), fmt.Sprint(ids[len(ids)-edge:])
	return strings.TrimSuffix(a, "]") + " ... " + strings.TrimPrefix(b, "[")
}

// shownParts are the first and last parts of a text that carry loss.
func shownParts(parts []string, edge int) string {
	var shown []string
	for i, part := range parts {
		if i == 3 && len(parts) > 4 {
			shown = append(shown, fmt.Sprintf("%d more", len(parts)-4))
		}
		if i < 3 || i == len(parts)-1 {
			shown = append(shown, shownText(part, edge))
		}
	}
	return strings.Join(shown, ", ")
}

// shownText is the beginning and the end of a text, quoted.
func shownText(text string, edge int) string {
	r := []rune(text)
	if len(r) <= 2*edge {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q ... %q", string(r[:edge]), string(r[len(r)-edge:]))
}
