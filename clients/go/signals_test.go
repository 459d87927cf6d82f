//go:build unix

package larder

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// halt stops a server, which reads and answers nothing from then on, until it is continued. A signal has not taken effect when it
// has been sent: all threads have to have stopped.
func halt(t testing.TB, server *exec.Cmd) {
	t.Helper()
	must(t, server.Process.Signal(syscall.SIGSTOP))
	until(t, "a server that stops", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", server.Process.Pid))
		for _, thread := range threads {
			// "pid (name) state …"
			text, _ := os.ReadFile(thread)
			if _, rest, found := strings.Cut(string(text), ") "); found && !strings.HasPrefix(rest, "T") {
				return false
			}
		}
		return true
	})
}

func goOn(t testing.TB, server *exec.Cmd) {
	t.Helper()
	must(t, server.Process.Signal(syscall.SIGCONT))
}
