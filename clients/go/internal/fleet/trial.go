package fleet

import (
	"errors"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/health"
	"larder.example/clients/go/internal/lane"
)

// What state says.
const (
	up uint32 = iota
	trying
	down
)

// look tells those who only look what the breaker says. Under the mutex.
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

// Down says that requests are refused at once.
func (s *Server) Down() bool { return s.state.Load() == down }

// admitted says whether a request may be sent to a server that is not known to be up, and whether tried is to be told
// of it.
func (s *Server) admitted() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.breaker.Half() {
		// Down is what Lane says, or nobody; else it came up meanwhile.
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

// fell begins probing and returns the lanes that are to end. Under the mutex.
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

// given ends the lanes of a server that was given up.
func (s *Server) given(ended []*lane.Lane, is bool) {
	if is {
		s.f.told(s.name, WentDown, 0, fault.Timeout)
	}
	for _, l := range ended {
		l.Close(fault.Lost)
	}
}

// late counts an operation that was not answered in time; when too many are, the lanes end and the prober begins.
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

// refusedPause is how long no password is tried after one was refused.
const refusedPause = 5 * time.Second
