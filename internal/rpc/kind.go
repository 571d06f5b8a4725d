package rpc

import "regexp"

var digits = regexp.MustCompile(`[0-9]+`)

// Kind is the message of an error without its numbers, such as times and ports, which are others each time: who meets an error
// again and again compares that, to log it once.
func Kind(message string) string { return digits.ReplaceAllString(message, "") }
