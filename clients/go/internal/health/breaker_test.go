package health

import (
	"testing"
	"time"
)

func TestOpensAfterThreeFailuresInARow(t *testing.T) {
	var b Breaker
	if b.Failed() || b.Failed() || b.Open() {
		t.Fatal("open after two")
	}
	b.Answered()
	if b.Failed() || b.Failed() || b.Open() || b.Half() {
		t.Fatal("an answer did not end the row")
	}
	if !b.Failed() || !b.Open() || b.Failed() {
		t.Fatal("not opened once by the third")
	}
	b.Probed()
	if b.Open() || !b.Half() {
		t.Fatal("a probe did not half open it")
	}
}

func TestHalfOpenAdmitsSixteenAndClosesWhenSixteenWereAnswered(t *testing.T) {
	var b Breaker
	b.trip()
	if b.Admit() {
		t.Fatal("admitted while open")
	}
	b.Probed()
	for range TrialsMax {
		if !b.Admit() {
			t.Fatal("not admitted")
		}
	}
	if b.Admit() {
		t.Fatal("one too many")
	}
	if b.Tried(Nothing) || !b.Admit() || b.Admit() {
		t.Fatal("one that went away does not leave its place to one other")
	}
	for i := range TrialsMax {
		if !b.Half() || b.Tried(Good) || b.Open() {
			t.Fatal("after", i)
		}
	}
	if b.Half() || b.Open() {
		t.Fatal("not closed")
	}
	if b.Tried(Bad) || b.Open() {
		t.Fatal("what ends after that counts")
	}
	b.trip()
	b.Probed()
	if !b.Admit() || !b.Admit() || !b.Tried(Bad) || !b.Open() || b.Half() || b.Tried(Bad) {
		t.Fatal("not opened by one")
	}
	b.Probed()
	if !b.Failed() || !b.Open() {
		t.Fatal("a failed dial while half open does not open it")
	}
}

func TestOpensWhenHalfOfThirtyTwoAreLateWithinASecond(t *testing.T) {
	for _, c := range []struct {
		late, answered int
		every          time.Duration
		opens          bool
	}{
		{31, 0, 0, false}, {32, 0, 0, true}, {16, 16, 0, true}, {15, 17, 0, false}, {400, 401, 0, false}, {401, 400, 0, true},
		{100, 0, 40 * time.Millisecond, false}, {100, 0, 20 * time.Millisecond, true},
	} {
		var b Breaker
		var now time.Duration
		// The first late answer opens the window; answers within it count.
		opened := b.Late(now, 1000)
		for range c.late - 1 {
			now += c.every
			opened = b.Late(now, 1000+uint64(c.answered)) || opened
		}
		if opened != c.opens || b.Open() != c.opens {
			t.Errorf("%+v: %v", c, opened)
		}
	}
}

func TestPausesGrowToALimit(t *testing.T) {
	var b Breaker
	b.trip()
	var within time.Duration
	probes := 0
	for i, most := range []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		pause := b.Pause()
		if most *= time.Millisecond; pause < most/2 || pause > most {
			t.Errorf("pause %d is %v", i, pause)
		}
		if within += pause; within < time.Second {
			probes++
		}
	}
	if probes+FailuresMax > 20 {
		t.Errorf("%d dials in the first second", probes+FailuresMax)
	}
	for range 100 {
		if pause := b.Pause(); pause > PauseMax {
			t.Fatal(pause)
		}
	}
}
