// Package faulty has stand-ins for servers in tests: connections in memory with small buffers, and a server that answers in
// pieces, late, or wrongly.
package faulty

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// half is one direction of a connection.
type half struct {
	mu     sync.Mutex
	bytes  []byte
	room   int
	closed bool
	change chan struct{}
}

func (h *half) changed() {
	close(h.change)
	h.change = make(chan struct{})
}

// End is one end of a connection; it is a net.Conn.
type End struct {
	in, out     *half
	mu          sync.Mutex
	read, write time.Time
}

// Pipe makes a connection that holds room bytes in each direction.
func Pipe(room int) (*End, *End) {
	there := &half{room: room, change: make(chan struct{})}
	back := &half{room: room, change: make(chan struct{})}
	return &End{in: back, out: there}, &End{in: there, out: back}
}

// wait returns when something has changed, or an error at the deadline.
func wait(change chan struct{}, until time.Time) error {
	if until.IsZero() {
		<-change
		return nil
	}
	left := time.Until(until)
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-change:
		return nil
	case <-timer.C:
		return os.ErrDeadlineExceeded
	}
}

// Read takes the bytes that are there.
func (e *End) Read(to []byte) (int, error) {
	e.mu.Lock()
	until := e.read
	e.mu.Unlock()
	for {
		e.in.mu.Lock()
		if len(e.in.bytes) > 0 {
			n := copy(to, e.in.bytes)
			e.in.bytes = append(e.in.bytes[:0], e.in.bytes[n:]...)
			e.in.changed()
			e.in.mu.Unlock()
			return n, nil
		}
		closed, change := e.in.closed, e.in.change
		e.in.mu.Unlock()
		if closed {
			return 0, io.EOF
		}
		if err := wait(change, until); err != nil {
			return 0, err
		}
	}
}

// Write waits for room.
func (e *End) Write(from []byte) (int, error) {
	e.mu.Lock()
	until := e.write
	e.mu.Unlock()
	for done := 0; ; {
		e.out.mu.Lock()
		if e.out.closed {
			e.out.mu.Unlock()
			return done, io.ErrClosedPipe
		}
		n := min(len(from)-done, e.out.room-len(e.out.bytes))
		if n > 0 {
			e.out.bytes = append(e.out.bytes, from[done:done+n]...)
			e.out.changed()
		}
		change := e.out.change
		e.out.mu.Unlock()
		if done += max(n, 0); done == len(from) {
			return done, nil
		}
		if err := wait(change, until); err != nil {
			return done, err
		}
	}
}

// Close ends both directions. Bytes that were written before can still be read.
func (e *End) Close() error {
	for _, h := range []*half{e.in, e.out} {
		h.mu.Lock()
		if !h.closed {
			h.closed = true
			h.changed()
		}
		h.mu.Unlock()
	}
	return nil
}

// SetReadDeadline applies to reads that begin later.
func (e *End) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.read = t
	return nil
}

// SetWriteDeadline applies to writes that begin later.
func (e *End) SetWriteDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.write = t
	return nil
}

// SetDeadline sets both.
func (e *End) SetDeadline(t time.Time) error {
	_ = e.SetReadDeadline(t)
	return e.SetWriteDeadline(t)
}

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }

// LocalAddr returns a placeholder.
func (e *End) LocalAddr() net.Addr { return address{} }

// RemoteAddr returns a placeholder.
func (e *End) RemoteAddr() net.Addr { return address{} }
