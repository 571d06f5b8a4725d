package balance

// Bitonic returns an order of microbatches, as indexes into costs, that is small
// at both ends and large in the middle: in a pipeline nothing overlaps with its
// first and last microbatches, so they should be the short ones. The smallest
// comes first, the next one last, and so on inwards; equal ones by index.
func Bitonic(costs []int64) []int32 {
	order := make([]costed, len(costs))
	for i, c := range costs {
		order[i] = costed{c, int32(i)}
	}
	order = new(sorter).sort(order)
	places := make([]int32, len(costs))
	front, back := 0, len(costs)-1
	for i := range order {
		item := order[len(order)-1-i].item
		if i%2 == 0 {
			places[front] = item
			front++
		} else {
			places[back] = item
			back--
		}
	}
	return places
}
