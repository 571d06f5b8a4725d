package rpc

import "github.com/millrace-data/millrace/internal/fault"

// The versions of what a service says to trainers, and its roles to each other. A version
// rises when one side has to know more than to leave out fields that it does not know.
//
//	2: acknowledgements are calls of their own (Constructor.Ack), not requests made again
//	3: sessions begin with the planner's epoch and have beats; a rank may join by its
//	   position, without a token
const (
	Protocol = 3 // the newest that this build speaks
	Oldest   = 2 // and the oldest, so that the version before it can be replaced part by part
)

// Sessions is the version from which on sessions of roles have epochs and beats.
const Sessions = 3

// side is one of two that speak with each other, as messages name it.
type side struct{ name, short string }

// agree is the version that a peer and this build speak: the newest that both know. lowest
// and newest are what the peer says of itself.
func agree(lowest, newest uint32, peer, self side) (uint32, error) {
	switch newest = max(lowest, newest); {
	case newest < Oldest:
		return 0, fault.Userf("%s is older than %s (protocol %d; the oldest spoken here is %d): upgrade %s", peer.name, self.name, max(newest, 1), Oldest, peer.short)
	case lowest > Protocol:
		return 0, fault.Userf("%s is newer than %s (protocol %d; the newest spoken here is %d): upgrade %s", peer.name, self.name, lowest, Protocol, self.short)
	}
	return min(newest, Protocol), nil
}

// AgreeClient is the version that the service speaks with a trainer's client, which takes
// those from lowest to newest. An error of class fault.User says which side to upgrade.
func AgreeClient(lowest, newest uint32) (uint32, error) {
	return agree(lowest, newest, side{"the trainer's Millrace client", "the client"}, side{"this service", "the service"})
}

// AgreeService takes the version that a service chose for this client, or refuses it.
func AgreeService(theirs uint32) error {
	_, err := agree(theirs, theirs, side{"the service", "the service"}, side{"this Millrace client", "the client"})
	return err
}

// AgreeRole is the version that the planner speaks with a loader or constructor, which said
// nothing of versions before the third.
func AgreeRole(lowest, newest uint32, role string) (uint32, error) {
	if lowest == 0 && newest == 0 {
		lowest, newest = Oldest, Sessions-1
	}
	return agree(lowest, newest, side{role, "it"}, side{"this planner", "the planner"})
}
