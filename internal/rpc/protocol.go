package rpc

import "github.com/millrace-data/millrace/internal/fault"

// Protocol is the version of what trainers and a service say to each other. It rises when one
// of both has to know more than to leave out fields that it does not know.
//
//	2: acknowledgements are calls of their own (Constructor.Ack), not requests made again
const Protocol = 2

// CheckClient refuses a trainer whose client is of another version than this service.
func CheckClient(theirs uint32) error {
	switch {
	case theirs < Protocol:
		return fault.Userf("the trainer's Millrace client is older than this service (protocol %d, the service has %d): upgrade the client", max(theirs, 1), Protocol)
	case theirs > Protocol:
		return fault.Userf("the trainer's Millrace client is newer than this service (protocol %d, the service has %d): upgrade the service", theirs, Protocol)
	}
	return nil
}

// CheckService refuses a service that is of another version than this client.
func CheckService(theirs uint32) error {
	switch {
	case theirs < Protocol:
		return fault.Userf("the service is older than this Millrace client (protocol %d, the client has %d): upgrade the service", max(theirs, 1), Protocol)
	case theirs > Protocol:
		return fault.Userf("the service is newer than this Millrace client (protocol %d, the client has %d): upgrade the client", theirs, Protocol)
	}
	return nil
}
