// Package health says whether a server is asked: a state machine with the time as an argument.
//
//	closed    ──3 failures in a row, or half of 32 operations late within a second──► open
//	open      ──a dial and its greeting work──► half open
//	half open ──16 operations were answered──► closed
//	half open ──one was not──► open
//
// While it is half open, 16 operations may be under way at once. While it is open nothing is dialed but by one prober, after pauses that grow from 50 ms to 5 s, each drawn from its
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
	// TrialsMax is how many operations a server that came back is asked at once, and how many it has to answer.
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

// Open says that callers are to be told at once.
func (b *Breaker) Open() bool { return b.open }

// Failed counts a failed dial, or a connection that was given up; true if that opened it.
func (b *Breaker) Failed() bool {
	b.failures++
	if b.open || (b.failures < FailuresMax && !b.half) {
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
	*b = Breaker{open: true}
}

// Answered counts a greeting that was answered.
func (b *Breaker) Answered() {
	b.failures = 0
}

// Probed ends being open: a prober's greeting was answered, and operations are tried.
func (b *Breaker) Probed() {
	*b = Breaker{half: true}
}

// Half says that operations are admitted one by one, and that each that was is to be told of by Tried.
func (b *Breaker) Half() bool { return b.half }

// Admit says whether one more operation may be tried.
func (b *Breaker) Admit() bool {
	if !b.half || b.trials == TrialsMax {
		return false
	}
	b.trials++
	return true
}

// Trial is what an operation that was admitted says about the server.
type Trial uint8

const (
	// Nothing: its caller went away.
	Nothing Trial = iota
	// Good: it was answered.
	Good
	// Bad: it was late, or its connection was lost.
	Bad
)

// Tried ends an operation that was admitted; true if that opened it again. What was admitted before it changed its state
// says nothing.
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
