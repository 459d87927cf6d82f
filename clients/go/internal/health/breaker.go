// Package health is a circuit breaker for one server: a state machine with the time as an argument.
//
//	closed    ──3 failures in a row, or half of 32 operations late within a second──► open
//	open      ──a dial and its greeting work──► half open
//	half open ──16 operations were answered──► closed
//	half open ──one was not──► open
//
// While it is half open, 16 operations may be under way at once. While it is open, only one prober dials, after pauses that grow
// from 50 ms to 5 s. Each pause is drawn from its upper half, so that many clients do not come back together.
package health

import (
	"math/rand/v2"
	"time"
)

const (
	// FailuresMax dials or connections may fail in a row.
	FailuresMax = 3
	// Window is the time over which late operations are counted.
	Window = time.Second
	// OpsMin is how many operations a window needs before it can open the breaker.
	OpsMin = 32
	// PauseMin and PauseMax bound the pauses between probes.
	PauseMin = 50 * time.Millisecond
	PauseMax = 5 * time.Second
	// TrialsMax is how many operations a server that came back gets at once, and how many it has to answer.
	TrialsMax = 16
)

// Breaker is the state of one server. Its zero value is closed.
type Breaker struct {
	open     bool
	half     bool
	trials   int
	good     int
	failures int
	probes   int

	windowSet bool
	window    time.Duration
	answered  uint64
	late      uint64
}

// Open says that calls fail at once.
func (b *Breaker) Open() bool { return b.open }

// Failed counts a failed dial, or a connection that was given up; true if that opened the breaker.
func (b *Breaker) Failed() bool {
	b.failures++
	if b.open || (b.failures < FailuresMax && !b.half) {
		return false
	}
	b.trip()
	return true
}

// Late counts a late operation of a server that has answered so many since it is known; true if that opened the breaker.
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
	*b = Breaker{open: true}
}

// Answered counts a greeting that was answered.
func (b *Breaker) Answered() {
	b.failures = 0
}

// Probed ends the open state: a prober's greeting was answered, and operations are tried.
func (b *Breaker) Probed() {
	*b = Breaker{half: true}
}

// Half says that operations are admitted one by one, and that Tried has to be called for each.
func (b *Breaker) Half() bool { return b.half }

// Admit says whether one more operation may be tried.
func (b *Breaker) Admit() bool {
	if !b.half || b.trials == TrialsMax {
		return false
	}
	b.trials++
	return true
}

// Trial is what an admitted operation shows about the server.
type Trial uint8

const (
	// Nothing: its caller left.
	Nothing Trial = iota
	// Good: it was answered.
	Good
	// Bad: it was late, or its connection was lost.
	Bad
)

// Tried ends an admitted operation; true if that opened the breaker again. An operation that was admitted before the last change
// of state is ignored.
func (b *Breaker) Tried(trial Trial) bool {
	if !b.half {
		return false
	}
	b.trials = max(b.trials-1, 0)
	switch trial {
	case Nothing:
	case Good:
		if b.good++; b.good == TrialsMax {
			*b = Breaker{}
		}
	case Bad:
		b.trip()
		return true
	}
	return false
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
