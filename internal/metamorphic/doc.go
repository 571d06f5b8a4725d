// Package metamorphic runs one job under many lists of operations and many options, and
// compares every run with the reference reader: whatever was killed, restarted, added, cut
// off, slowed down, paused or rolled back, the ranks get the same steps.
//
// It owns the operations, their text, the options, a service of real roles on the network
// of package sim, and the reduction of a list that fails to a shorter one that does. In a
// bubble of testing/synctest its time is virtual. It never reaches into a role. Package
// sim draws faults of the network at random times; here each operation has a step, so that
// a list can be written down, shortened and kept.
package metamorphic
