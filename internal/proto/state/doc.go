// Package statepb is the messages that outlive a process: resume tokens, key frames
// and the records of steps. state.proto says what each field means, and the rest is
// generated from it. It owns no behaviour: internal/planner/token reads and writes them.
package statepb
