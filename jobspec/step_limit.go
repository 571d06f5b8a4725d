package jobspec

import (
	"fmt"
	"math"
	"strings"
)

// Limit is how many records of a source are taken, the first of its files.
type Limit int64

var limitOperator = Operator{
	Name:    "limit",
	Doc:     "Takes the first records of the source only, in the order of its files and of the records in them; bad ones count. An epoch has no others, and files behind the last of them are no part of the data. The field `limit` of a source counts samples of a shuffled epoch instead. To open the source, each loader reads that many records once.",
	Example: "[{limit: 10k}, {tokenize: bytes}]",
	Takes:   []string{"nothing"},
	Records: Drops,
	Rules:   "The first step of a chain.",

	step: Limit(0), value: field{kind: countKind, min: 1, max: math.MaxInt64},
}

// Operator implements Transform.
func (Limit) Operator() string { return limitOperator.Name }

// Words implements Transform.
func (l Limit) Words() string { return fmt.Sprintf("the first %d records", int64(l)) }

func (l Limit) check(c *checker, at string) {
	if c.sound(at) && !strings.HasSuffix(parentField(at), "[0]") {
		c.error(at, "comes after another step", "move it to the front: it counts records as the files have them; a source's own limit counts samples")
	}
}

// FirstRecords returns how many records of the source are taken, the first of its files; 0: all.
func (s *Source) FirstRecords() int64 {
	if len(s.Transforms) > 0 {
		if limit, ok := s.Transforms[0].(Limit); ok {
			return int64(limit)
		}
	}
	return 0
}
