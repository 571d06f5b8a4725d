package tokenize

import (
	"bytes"
	"cmp"
	"slices"
)

// trie finds the tokens that a text begins with, by a double array: the child of a node for a byte is at
// the node's base XOR the byte, if the child's parent is the node. It is read-only once built.
type trie struct {
	nodes []trieNode
}

type trieNode struct {
	base, parent int32
	id           int32 // of the token that ends here, or none
}

// trieTries is how many places are looked at for the children of a node before a new block is taken. More
// makes the table denser and slower to build.
const trieTries = 32

// trieBuilder lays out the nodes; free lists the places not in use.
type trieBuilder struct {
	trie
	texts      [][]byte // sorted
	ids        []int32
	next, prev []int32 // neighbours of a free place; -1 for a place in use
	head       int32   // the first free place, -1 for none
}

// trieRange is the texts below a node.
type trieRange struct {
	node           int32
	lo, hi, length int
}

// newTrie has the texts with these ids; of equal texts the last.
func newTrie(texts [][]byte, ids []int32) *trie {
	order := make([]int, len(texts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(bytes.Compare(texts[a], texts[b]), a-b) })
	b := &trieBuilder{head: -1}
	for _, i := range order {
		b.texts, b.ids = append(b.texts, texts[i]), append(b.ids, ids[i])
	}
	b.grow()
	b.use(0)
	b.nodes[0] = trieNode{parent: -1, id: none}
	for todo := []trieRange{{hi: len(b.texts)}}; len(todo) > 0; {
		r := todo[len(todo)-1]
		todo = b.children(todo[:len(todo)-1], r)
	}
	return &trie{b.nodes}
}

// children places the children of a node and appends them to todo.
func (b *trieBuilder) children(todo []trieRange, r trieRange) []trieRange {
	for r.lo < r.hi && len(b.texts[r.lo]) == r.length {
		b.nodes[r.node].id = b.ids[r.lo]
		r.lo++
	}
	var labels []byte
	from := len(todo)
	for i := r.lo; i < r.hi; {
		label := b.texts[i][r.length]
		end := i
		for end < r.hi && b.texts[end][r.length] == label {
			end++
		}
		labels = append(labels, label)
		todo = append(todo, trieRange{lo: i, hi: end, length: r.length + 1})
		i = end
	}
	if len(labels) == 0 {
		return todo
	}
	base := b.place(labels)
	b.nodes[r.node].base = base
	for k, label := range labels {
		at := base ^ int32(label)
		b.use(at)
		b.nodes[at] = trieNode{parent: r.node, id: none}
		todo[from+k].node = at
	}
	return todo
}

// place returns a base at which there is room for children with these labels.
func (b *trieBuilder) place(labels []byte) int32 {
	for at, n := b.head, 0; at >= 0 && n < trieTries; at, n = b.next[at], n+1 {
		base := at ^ int32(labels[0])
		if !slices.ContainsFunc(labels, func(l byte) bool { return b.prev[base^int32(l)] == used }) {
			return base
		}
	}
	base := int32(len(b.nodes))
	b.grow()
	return base
}

// used marks a place that is not free.
const used = -2

// grow adds a block of free places, which come first from now on.
func (b *trieBuilder) grow() {
	from := int32(len(b.nodes))
	for i := from; i < from+256; i++ {
		b.nodes = append(b.nodes, trieNode{parent: -1, id: none})
		b.next, b.prev = append(b.next, i+1), append(b.prev, i-1)
	}
	last := from + 255
	b.next[last], b.prev[from] = b.head, -1
	if b.head >= 0 {
		b.prev[b.head] = last
	}
	b.head = from
}

// use takes a place out of the free ones.
func (b *trieBuilder) use(at int32) {
	next, prev := b.next[at], b.prev[at]
	if prev >= 0 {
		b.next[prev] = next
	} else {
		b.head = next
	}
	if next >= 0 {
		b.prev[next] = prev
	}
	b.prev[at] = used
}

// longest returns the length of the longest text that t begins with, 0 for none; with any, of any part of one.
func (r *trie) longest(t []byte, any bool) (n int) {
	node := int32(0)
	for i, c := range t {
		child := r.nodes[node].base ^ int32(c)
		if r.nodes[child].parent != node {
			break
		}
		node = child
		if any || r.nodes[node].id != none {
			n = i + 1
		}
	}
	return n
}
