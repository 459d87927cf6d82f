package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

// connect dials and greets.
func (s *Server) connect() (*lane.Lane, error) {
	conn, protocol, err := s.open(context.Background(), s.f.o.DialTimeout)
	if err != nil {
		return nil, err
	}
	o := &s.f.o
	return lane.New(conn, lane.Options{
		Server: s.name, Protocol: protocol, Timeout: o.Timeout, Stall: o.Stall, InFlight: o.InFlight, Verify: o.Verify,
		Vector: o.Vector,
	}), nil
}

// open dials, and does everything that precedes the first request, within the caller's context and the limit.
func (s *Server) open(caller context.Context, limit time.Duration) (net.Conn, wire.Protocol, error) {
	s.mu.Lock()
	s.dials++
	s.mu.Unlock()
	began := time.Now()
	conn, protocol, err := s.opened(caller, limit)
	if err != nil {
		s.f.observe(s.name, DialFailed, time.Since(began), err)
	} else {
		s.f.observe(s.name, Dialed, time.Since(began), nil)
	}
	return conn, protocol, err
}

func (s *Server) opened(caller context.Context, limit time.Duration) (net.Conn, wire.Protocol, error) {
	o := &s.f.o
	ctx, end := context.WithTimeout(s.f.life, min(o.DialTimeout, limit))
	defer end()
	defer context.AfterFunc(caller, end)()
	down := func(err error) error {
		switch {
		case s.f.life.Err() != nil:
			return fault.Closed
		case errors.Is(err, fault.Auth):
			return err
		}
		return &fault.Error{Err: fault.Down, Outcome: fault.NotSent, Server: s.name, Detail: err.Error(), Cause: err}
	}
	conn, err := o.Dial(ctx, s.network, s.address)
	if err != nil {
		return nil, 0, down(err)
	}
	// Close has to end a greeting that is not answered. The error is then why it was closed, not that the connection is closed.
	raw := conn
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	protocol := wire.Meta
	if o.TLS != nil {
		conn, err = s.secured(ctx, conn)
	}
	if err == nil && o.Auth != nil {
		err = s.authenticate(ctx, conn)
	}
	if err == nil {
		protocol, err = greet(conn, o.Protocol)
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, 0, down(err)
	}
	if _, is := conn.(*tls.Conn); is {
		conn = newPatient(conn)
	}
	return conn, protocol, nil
}

// secured starts TLS. The server's name is the address's, unless the configuration has one.
func (s *Server) secured(ctx context.Context, conn net.Conn) (net.Conn, error) {
	c := s.f.o.TLS
	if c.ServerName == "" {
		c = c.Clone()
		host, _, err := net.SplitHostPort(s.address)
		if err != nil {
			host = s.address
		}
		c.ServerName = host
	}
	secure := tls.Client(conn, c)
	return secure, secure.HandshakeContext(ctx)
}

// authenticate sends user and password, as memcached wants it: first of all a set, of any key, to "user password".
func (s *Server) authenticate(ctx context.Context, conn net.Conn) error {
	user, password, err := s.f.o.Auth(ctx, s.name, s.address)
	if err != nil {
		return err
	}
	head, err := exchange(conn, wire.Classic, &wire.Request{Verb: wire.Set, Key: "auth", Value: []byte(user + " " + password)})
	if err != nil {
		return err
	}
	if head.Status != wire.Done {
		return &fault.Error{Err: fault.Auth, Outcome: fault.NotSent, Server: s.name, Detail: string(head.Text)}
	}
	return nil
}
