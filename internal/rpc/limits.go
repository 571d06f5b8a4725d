package rpc

import (
	"fmt"
	"regexp"
	"strconv"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/fault"
)

// The limits of what a server takes. A message is refused by what its frame says of its
// length, before memory is taken for it.
const (
	// MaxControl bounds a message to the planner: a resume token has at most 16 MiB. Larger
	// reports of loaders and constructors come in parts.
	MaxControl = 17 << 20
	// MaxAsk bounds a trainer's request for a batch, which has some 100 bytes.
	MaxAsk = 64 << 10
	// MaxFetch bounds a constructor's request for the samples of a step: 16 million of them.
	MaxFetch = 64 << 20
	// MaxPiece bounds a message between a loader and a worker pool: a piece of a batch, or what is said beside it.
	MaxPiece = 1 << 20
	// maxStreams bounds the calls under way of one connection. A rank has a handful, and a
	// constructor one for each step that it fetches.
	maxStreams = 256
	// maxHeader bounds the headers of a call, which are a path and an access key.
	maxHeader = 16 << 10
	// askBuffer is what a server of small messages reads at a time, in the place of gRPC's 32 KiB: thousands of trainers
	// that all say at once that they have a step would take a buffer each.
	askBuffer = 4 << 10
)

// limits are the options of a server that takes messages of at most largest bytes.
func limits(largest int) []grpc.ServerOption {
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(largest), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeader)}
	if largest <= MaxAsk {
		options = append(options, grpc.ReadBufferSize(askBuffer))
	}
	return options
}

// TooLarge is the error of what is beyond a limit.
func TooLarge(what, limit string, most int) error {
	return fault.Userf("%s is larger than the limit %s allows: %d bytes", what, limit, most)
}

// larger is how gRPC refuses a message by its length.
var larger = regexp.MustCompile(`received message larger than max \((\d+) vs\. (\d+)\)`)

// limitNames name the limits of servers, for those who meet them.
var limitNames = map[string]string{
	strconv.Itoa(MaxControl): "max_control", strconv.Itoa(MaxAsk): "max_ask", strconv.Itoa(MaxFetch): "max_fetch", strconv.Itoa(MaxPiece): "max_piece",
}

// tooLarge gives gRPC's refusal of a message the limit's name; nil if text is none. To send the
// message again is of no use.
func tooLarge(text string) error {
	m := larger.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	most, err := strconv.Atoi(m[2])
	if err != nil {
		return nil
	}
	name, ok := limitNames[m[2]]
	if !ok {
		name = "of the other side"
	}
	return TooLarge(fmt.Sprintf("a message of %s bytes", m[1]), name, most)
}
