package checkpoint

import "testing"

// TestHolder: a log that is open is said to be so in the process that has it, where that is known.
func TestHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  READ 7 00:2a:123 0 EOF
2: POSIX  ADVISORY  WRITE 0 00:2a:124 0 EOF
2: -> POSIX  ADVISORY  WRITE 8 00:2a:123 0 EOF
3: FLOCK  ADVISORY  WRITE 9 00:2a:125 0 EOF
4: POSIX  ADVISORY  WRITE 4711 00:2a:123 0 EOF
`
	for file, want := range map[string]string{"00:2a:123": "process 4711", "00:2a:124": "unknown", "00:2a:126": "unknown"} {
		if got := holderIn([]byte(locks), file, "unknown"); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}
