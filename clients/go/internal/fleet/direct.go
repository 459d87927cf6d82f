package fleet

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

// direct is a connection for one caller at a time: for values that are streamed, and for answers of many lines.
type direct struct {
	// free is full while a caller has the connection.
	free chan struct{}

	mu     sync.Mutex
	conn   *Conn
	closed bool
}

// Conn is the connection of its present caller. Reads and writes fail when the server makes no progress for Stall.
type Conn struct {
	net.Conn
	In       *bufio.Reader
	Protocol wire.Protocol
	stall    time.Duration
}

// Read reads from the connection, for Stall at most.
func (c *Conn) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.stall))
	return c.Conn.Read(b)
}

// Write writes to the connection, for Stall at most.
func (c *Conn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.stall))
	return c.Conn.Write(b)
}

// Line reads a line, without its end. It is valid until the next read.
func (c *Conn) Line() ([]byte, error) {
	line, err := c.In.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			err = wire.ErrGrammar
		}
		return nil, err
	}
	line, _, err = wire.Line(line)
	return line, err
}

// Alone passes the server's connection for one caller to f. The deadline limits the time to get it. f is limited by the context
// and, while the server makes no progress, by Stall. f returns whether the connection can be used again.
func (s *Server) Alone(ctx context.Context, deadline time.Duration, f func(*Conn) (bool, error)) error {
	d := &s.alone
	late := func(cause error) error {
		return &fault.Error{Err: fault.Timeout, Outcome: fault.NotSent, Server: s.name, Cause: cause}
	}
	if cause := ctx.Err(); cause != nil {
		return late(cause)
	}
	timer := time.NewTimer(deadline - lane.Now())
	defer timer.Stop()
	select {
	case d.free <- struct{}{}:
	case <-ctx.Done():
		return late(ctx.Err())
	case <-timer.C:
		return late(nil)
	}
	defer func() { <-d.free }()
	conn, err := s.direct(ctx, deadline)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	keep, err := f(conn)
	ended := !stop()
	if ended || !keep {
		d.drop()
	}
	var e *fault.Error
	if ended && errors.As(err, &e) && e.Err == fault.Lost {
		e.Err, e.Cause = fault.Timeout, ctx.Err()
	}
	return err
}

// direct returns the connection. It dials if there is none, or if the old one does not answer.
func (s *Server) direct(ctx context.Context, deadline time.Duration) (*Conn, error) {
	d := &s.alone
	d.mu.Lock()
	conn := d.conn
	d.mu.Unlock()
	if conn != nil {
		_ = conn.SetDeadline(time.Now().Add(deadline - lane.Now()))
		if _, err := exchange(conn.Conn, conn.Protocol, &wire.Request{Verb: wire.Noop}); err == nil {
			return conn, nil
		}
		d.drop()
	}
	s.mu.Lock()
	var err error
	switch {
	case s.closed:
		err = s.why()
	case s.breaker.Open():
		err = fault.Down
	case s.refusedCause != nil && lane.Now() < s.refused:
		err = s.refusedCause
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	left := deadline - lane.Now()
	if left <= 0 {
		// The old connection, or another caller, has taken all of it: the server was not tried.
		return nil, &fault.Error{Err: fault.Timeout, Outcome: fault.NotSent, Server: s.name, Cause: ctx.Err()}
	}
	raw, protocol, err := s.open(ctx, left)
	if err != nil {
		if cause := ctx.Err(); cause != nil {
			return nil, &fault.Error{Err: fault.Timeout, Outcome: fault.NotSent, Server: s.name, Detail: "dialing", Cause: cause}
		}
		if !errors.Is(err, fault.Closed) {
			s.mu.Lock()
			down := s.missed(err)
			s.mu.Unlock()
			if down {
				s.f.observe(s.name, WentDown, 0, err)
			}
		}
		return nil, err
	}
	conn = &Conn{Conn: raw, Protocol: protocol, stall: s.f.o.Stall}
	conn.In = bufio.NewReaderSize(conn, 32<<10)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = raw.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.why()
	}
	d.conn = conn
	return conn, nil
}

func (d *direct) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		_ = d.conn.Close()
		d.conn = nil
	}
}

func (d *direct) end() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.drop()
}

// idle waits until no caller has the connection.
func (d *direct) idle(ctx context.Context, deadline time.Duration) bool {
	timer := time.NewTimer(deadline - lane.Now())
	defer timer.Stop()
	select {
	case d.free <- struct{}{}:
		<-d.free
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}
