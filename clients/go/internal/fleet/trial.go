package fleet

import (
	"errors"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/health"
	"larder.example/clients/go/internal/lane"
)

// Values of state.
const (
	up uint32 = iota
	trying
	down
)

// look publishes the breaker's state to readers without the mutex. Under the mutex.
func (s *Server) look() {
	state := up
	switch {
	case s.breaker.Open():
		state = down
	case s.breaker.Half():
		state = trying
	}
	s.state.Store(state)
}

// Down says that requests fail at once.
func (s *Server) Down() bool { return s.state.Load() == down }

// admitted says whether a request may be sent to a server that is not known to be up, and whether tried has to be called with its
// result.
func (s *Server) admitted() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.breaker.Half() {
		// If the server is down, Lane says so; else it came up meanwhile.
		return false, nil
	}
	if !s.breaker.Admit() {
		return false, fault.Down
	}
	return true, nil
}

// tried ends a request that was admitted.
func (s *Server) tried(err error) {
	trial := health.Good
	var e *fault.Error
	if errors.As(err, &e) {
		switch {
		case e.Err == fault.Timeout && e.Cause != nil, e.Err == fault.Closed, e.Err == fault.Server:
			trial = health.Nothing
		default:
			trial = health.Bad
		}
	} else if err != nil {
		trial = health.Nothing
	}
	var ended []*lane.Lane
	s.mu.Lock()
	opened := s.breaker.Tried(trial) && !s.closed
	if opened {
		ended = s.fell()
	}
	s.look()
	s.mu.Unlock()
	s.given(ended, opened)
}

// fell starts probing and returns the lanes to close. Under the mutex.
func (s *Server) fell() []*lane.Lane {
	var ended []*lane.Lane
	for i := range s.lanes {
		if l := s.lanes[i].lane.Load(); l != nil {
			ended = append(ended, l)
		}
	}
	s.look()
	s.f.beside(s.probe)
	return ended
}

// given closes the lanes of a server that was given up.
func (s *Server) given(ended []*lane.Lane, is bool) {
	if is {
		s.f.observe(s.name, WentDown, 0, fault.Timeout)
	}
	for _, l := range ended {
		l.Close(fault.Lost)
	}
}

// late counts a late operation. When too many are late, the lanes are closed and probing starts.
func (s *Server) late() {
	var ended []*lane.Lane
	s.mu.Lock()
	answered := s.past.Replies
	for i := range s.lanes {
		if l := s.lanes[i].lane.Load(); l != nil {
			answered += l.Counters().Replies
		}
	}
	opened := !s.closed && s.breaker.Late(lane.Now(), answered)
	if opened {
		ended = s.fell()
	}
	s.mu.Unlock()
	s.given(ended, opened)
}

// refusedPause is how long no password is tried after a refusal.
const refusedPause = 5 * time.Second
