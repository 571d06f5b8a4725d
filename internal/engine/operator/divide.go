package operator

// Part is a range of a file's bytes that one source task reads.
type Part struct {
	File   int
	Lo, Hi int64
}

// The bounds of a source task's bytes: less costs more to begin than to read, and more is one of few tasks that all the others wait
// for at the end.
const (
	leastPart = 1 << 20
	mostPart  = 128 << 20
)

// tasksEach is how many source tasks there are for each slot: while one works the next is ready, and those that take longer
// than others leave less idle at the end.
const tasksEach = 2

// Divide cuts files of these sizes into source tasks for as many slots as there are: two for each, of 1 MiB at the least
// and 128 MiB at the most, the parts of a file alike. A file below that is one. The rows of a pipeline and their order are the same however
// its files are divided; where its partitions end is not, nor what a stage takes together that merges or gathers.
func Divide(sizes []int64, slots int) (parts []Part) {
	total := int64(0)
	for _, size := range sizes {
		total += size
	}
	each := min(max(total/int64(tasksEach*max(slots, 1)), leastPart), mostPart)
	for file, size := range sizes {
		n := max((size+each-1)/each, 1)
		begin := func(i int64) int64 { return size/n*i + min(i, size%n) }
		for i := range n {
			parts = append(parts, Part{file, begin(i), begin(i + 1)})
		}
	}
	return parts
}
