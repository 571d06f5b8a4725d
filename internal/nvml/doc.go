// Package nvml finds the NVIDIA GPUs of this machine, and samples what they do, through the driver's management
// library.
//
// The library is loaded at run time, in builds with cgo and the tag nvml. Without it, in other builds, and on
// machines without a driver there are no GPUs: a Library says so once in the log, and everything else
// behaves as on a machine that has none.
//
// The package owns the handle of the library and its samples. It never changes a setting of a device, never
// uses a device for work, and decides nothing: who runs where is internal/worker's, and what a sample means is
// the reader's.
package nvml
