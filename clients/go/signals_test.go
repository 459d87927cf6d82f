//go:build unix

package larder

import "syscall"

// A server that is stopped takes and answers nothing, until it goes on.
const (
	stopSignal = syscall.SIGSTOP
	goOnSignal = syscall.SIGCONT
)
