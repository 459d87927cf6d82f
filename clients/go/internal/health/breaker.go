// Package health says whether a server is asked: a state machine with the time as an argument.
//
//	closed ──3 failures in a row, or half of 32 operations late within a second──► open
//	open   ──a dial and its greeting work──► closed
//
// While it is open nothing is dialed but by one prober, after pauses that grow from 50 ms to 5 s, each drawn from its
// upper half so that many clients do not come back together.
package health

import (
	"math/rand/v2"
	"time"
)

const (
	// FailuresMax dials or connections may fail in a row.
	FailuresMax = 3
	// Window is how long late operations count.
	Window = time.Second
	// OpsMin is how many operations a window needs to say anything.
	OpsMin = 32
	// PauseMin and PauseMax bound the pauses between probes.
	PauseMin = 50 * time.Millisecond
	PauseMax = 5 * time.Second
)

// Breaker is the state of one server. Its zero value is closed.
type Breaker struct {
	open     bool
	failures int
	probes   int

	windowSet bool
	window    time.Duration
	answered  uint64
	late      uint64
}

// Open says that callers are to be told at once.
func (b *Breaker) Open() bool { return b.open }

// Failed counts a failed dial, or a connection that was given up; true if that opened it.
func (b *Breaker) Failed() bool {
	b.failures++
	if b.open || b.failures < FailuresMax {
		return false
	}
	b.trip()
	return true
}

// Late counts an operation that was not answered in time, of a server that has answered so many since it is known;
// true if that opened it.
func (b *Breaker) Late(now time.Duration, answered uint64) bool {
	if !b.windowSet || now-b.window > Window || answered < b.answered {
		b.windowSet, b.window, b.answered, b.late = true, now, answered, 0
	}
	b.late++
	answered -= b.answered
	if b.open || b.late+answered < OpsMin || b.late < answered {
		return false
	}
	b.trip()
	return true
}

func (b *Breaker) trip() {
	b.open, b.probes = true, 0
}

// Answered closes it: a greeting was answered.
func (b *Breaker) Answered() {
	*b = Breaker{}
}

// Pause is how long the prober waits before its next dial.
func (b *Breaker) Pause() time.Duration {
	pause := PauseMax
	if b.probes < 7 {
		pause = min(PauseMin<<b.probes, PauseMax)
	}
	b.probes++
	return pause/2 + time.Duration(rand.Int64N(int64(pause/2)+1))
}
