package balance

import (
	"cmp"
	"slices"
)

// limitRounds bounds how often PackLimited packs anew before it gives items
// back; each round is one Pack.
const limitRounds = 6

// PackLimited is Pack for a stream of items: what fits nowhere now is kept for
// the next call, but at most `leave` items may be. It returns the bin of each of
// the first n items, -1 for those left over; items from n on are to be given
// back to the stream. The first `first` items are never given back.
//
// Best fit alone leaves the shortest items over when long ones fill the bins. If
// they are too many, the shortest are placed before the others and long ones are
// left over in their stead; only if that does not help are items given back,
// from the end.
func (p *Packer) PackLimited(lengths []int32, first int, capacity int32, bins, leave int) (bin []int32, n int, err error) {
	n = len(lengths)
	for {
		bin, left, err := p.packUrgent(lengths[:n], first, capacity, bins, leave)
		if err != nil || left <= leave || n == first {
			return bin, n, err
		}
		n -= min(left-leave, n-first)
	}
}

// packUrgent packs items, in each round with those placed early that were too
// many to leave over.
func (p *Packer) packUrgent(lengths []int32, first int, capacity int32, bins, leave int) (bin []int32, left int, err error) {
	order := make([]int32, len(lengths)) // place in the packing order -> item
	for i := range order {
		order[i] = int32(i)
	}
	urgent := make([]bool, len(lengths))
	sorted := make([]int32, len(lengths))
	bin = make([]int32, len(lengths))
	early := first // items placed before the others
	for round := 0; ; round++ {
		for k, i := range order {
			sorted[k] = lengths[i]
		}
		packed, _, err := p.Pack(sorted, early, capacity, bins)
		if err != nil {
			return nil, 0, err
		}
		var over []int32
		for k, i := range order {
			if bin[i] = packed[k]; bin[i] < 0 {
				over = append(over, i)
			}
		}
		if len(over) <= leave || round == limitRounds {
			return bin, len(over), nil
		}
		slices.SortStableFunc(over, func(a, b int32) int { return cmp.Or(cmp.Compare(lengths[a], lengths[b]), cmp.Compare(a, b)) })
		moved := early
		for _, i := range over[:len(over)-leave] {
			if int(i) >= first && !urgent[i] {
				urgent[i] = true
				moved++
			}
		}
		if moved == early {
			return bin, len(over), nil
		}
		order, early = rank(order, urgent, early), moved
	}
}

// rank moves the urgent items behind the ones that come first already, the order
// of all others stays.
func rank(order []int32, urgent []bool, early int) []int32 {
	ranked := append(make([]int32, 0, len(order)), order[:early]...)
	for _, i := range order[early:] {
		if urgent[i] {
			ranked = append(ranked, i)
		}
	}
	for _, i := range order[early:] {
		if !urgent[i] {
			ranked = append(ranked, i)
		}
	}
	return ranked
}
