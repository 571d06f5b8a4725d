package rpc

import (
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A message of more than wholeMessage bytes, which all sides take, goes in parts of partEntries of each column: of the
// longest, skipped records with their files and reasons, these are some MB.
const (
	wholeMessage = 2 << 20
	partEntries  = 8192
)

// Parts cuts a message that is too large for the planner into several, which merged give it
// again, and says of each whether more follow. What is no column only the first has.
func Parts[M proto.Message](m M) iter.Seq2[M, bool] {
	return func(yield func(part M, more bool) bool) {
		longest := 0
		for _, list := range columns(m) {
			longest = max(longest, list.Len())
		}
		if longest <= partEntries || proto.Size(m) <= wholeMessage {
			yield(m, false)
			return
		}
		for begin := 0; begin < longest; begin += partEntries {
			part := m.ProtoReflect().New()
			for f, list := range columns(m) {
				to := part.Mutable(f).List()
				for i := begin; i < min(begin+partEntries, list.Len()); i++ {
					to.Append(list.Get(i))
				}
			}
			if begin == 0 {
				m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
					if !f.IsList() {
						part.Set(f, v)
					}
					return true
				})
			}
			if !yield(part.Interface().(M), begin+partEntries < longest) {
				return
			}
		}
	}
}

// columns are the repeated fields of a message.
func columns(m proto.Message) iter.Seq2[protoreflect.FieldDescriptor, protoreflect.List] {
	return func(yield func(protoreflect.FieldDescriptor, protoreflect.List) bool) {
		m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			return !f.IsList() || yield(f, v.List())
		})
	}
}
