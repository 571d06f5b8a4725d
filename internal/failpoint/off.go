//go:build !failpoint

package failpoint

// Enabled says whether the binary was built with the tag failpoint.
const Enabled = false

// SmallLog is 0: EnvSmallLog is not looked at.
func SmallLog() int { return 0 }

// Hit passes a site.
func Hit(Site) {}

// Error passes a site whose operation may fail there.
func Error(Site) error { return nil }

// Tear passes a site with what is to be written: write half of it if torn, and call Die.
func Tear(Site) (torn bool) { return false }

// Die ends the process as kill does.
func Die() {}
