// Package rig runs a job with real processes that are killed, stopped and cut off, and
// ranks that check what they get.
//
// It owns small jobs with data of their own, what the reference reader says of them, the
// processes of all roles with their ends and new beginnings, and ranks that train in step,
// measure how long they wait, and compare every step with the reference: its digest, each
// sample once, and the resume token. It needs the millrace binary and nothing else, so that
// it runs where there is no Go. It decides nothing about which harm is done;
// bench/killmatrix and bench/stalls do.
package rig
