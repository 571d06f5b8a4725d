//go:build !unix

package cli

import "os"

// terminalWidth is the number of columns of a terminal, 0 if f is none. Here that is
// not known, so that progress is printed in lines.
func terminalWidth(*os.File) int { return 0 }
