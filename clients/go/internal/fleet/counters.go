package fleet

import "larder.example/clients/go/internal/lane"

// Counters of a server.
type Counters struct {
	lane.Counters
	Dials, DialsFailed uint64
	Down               bool
}

// Counters returns what was done so far.
func (s *Server) Counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Counters{Counters: s.past, Dials: s.dials, DialsFailed: s.failed, Down: s.breaker.Open()}
	for i := range s.lanes {
		if l := s.lanes[i].lane.Load(); l != nil {
			add(&c.Counters, l.Counters())
		}
	}
	return c
}

func add(to *lane.Counters, c lane.Counters) {
	to.Ops += c.Ops
	to.Replies += c.Replies
	to.Writes += c.Writes
	to.Reads += c.Reads
	to.Yields += c.Yields
	to.Abandoned += c.Abandoned
	to.Helpers += c.Helpers
	to.BytesOut += c.BytesOut
	to.BytesIn += c.BytesIn
}
