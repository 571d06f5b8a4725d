package balance

import "fmt"

// levels is the scratch of a partition in groups.
type levels struct {
	group  []int32 // per item
	member []int32 // items by group, in a group by index
	end    []int32 // per group, where its members end
	bin    []int32 // of one group's members
}

// partition partitions items items into o.Groups groups, and the members of each
// into its bins; or into bins at once if there are no groups. flat does one
// partition, of the members given, or of all items for nil. With equal counts both
// levels are equal, which makes the bins' counts equal: the quotients of a quotient.
func (l *levels) partition(items int, o Options, flat func(members []int32, o Options, bin []int32) error, bin []int32) error {
	if o.Groups <= 1 {
		return flat(nil, o, bin)
	}
	l.group = grow(l.group, items)
	upper, lower := o, o
	upper.Bins, lower.Bins = o.Groups, o.Bins/o.Groups
	if err := flat(nil, upper, l.group); err != nil {
		return fmt.Errorf("partitioning into %d groups: %w", o.Groups, err)
	}
	l.collect(o.Groups)
	first := int32(0)
	for g, end := range l.end {
		members := l.member[first:end:end]
		first = end
		l.bin = grow(l.bin, len(members))
		if err := flat(members, lower, l.bin); err != nil {
			return fmt.Errorf("partitioning group %d of %d: %w", g, o.Groups, err)
		}
		for i, item := range members {
			bin[item] = int32(g*lower.Bins) + l.bin[i]
		}
	}
	return nil
}

// collect lists the members of each group: a counting sort by group.
func (l *levels) collect(groups int) {
	l.end = grow(l.end, groups)
	clear(l.end)
	for _, g := range l.group {
		l.end[g]++
	}
	sum := int32(0)
	for g, size := range l.end {
		l.end[g] = sum
		sum += size
	}
	l.member = grow(l.member, len(l.group))
	for item, g := range l.group {
		l.member[l.end[g]] = int32(item)
		l.end[g]++
	}
}
