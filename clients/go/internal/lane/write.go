package lane

import (
	"context"
	"errors"
	"net"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/wire"
)

// stuck is the time since which a writer has made no progress.
type stuck struct {
	since time.Duration
	is    bool
}

// write writes b, the end of whole; false if another goroutine continues with it.
func (l *Lane) write(ctx context.Context, op *Op, b, whole []byte) bool {
	for patience := (stuck{}); l.err == nil; {
		l.allowWriting()
		l.mu.Unlock()
		n, err := l.conn.Write(b)
		l.mu.Lock()
		l.counters.BytesOut += uint64(n)
		b = b[n:]
		if len(b) == 0 {
			if cap(whole) <= keepBytes {
				l.spare = whole[:0]
			}
			l.wakeRoom()
			return true
		}
		if !l.mayGoOn(err, n, len(b), &patience) {
			break
		}
		if op != nil && (op.done || l.overdue(ctx, op.deadline, fault.Unknown) != nil) {
			l.leaveRest(b, whole)
			return false
		}
	}
	l.writing = false
	return false
}

// flushApart writes a request whose value is not copied, and then what other callers have added.
func (l *Lane) flushApart(ctx context.Context, op *Op, r *wire.Request) {
	l.writing = true
	value := r.Value
	r.Apart, r.Size = true, int64(len(value))
	head := l.o.Protocol.Write(l.out, r)
	r.Apart = false
	l.out, l.spare = l.spare[:0], nil
	left := len(head) + len(value) + len(lineEnd)
	l.queued += uint64(left)
	l.handed += uint64(left)
	if l.owed > 1 {
		l.findReader()
	}
	parts := l.vector
	if cap(parts) < 3 {
		parts = make(net.Buffers, 3)
	}
	parts = append(parts[:0], head, value, lineEnd)
	l.vector = parts
	// In any case the value belongs to the caller again when this returns.
	defer clear(parts)
	for patience := (stuck{}); l.err == nil; {
		l.allowWriting()
		l.mu.Unlock()
		n, err := l.vector.WriteTo(l.conn)
		l.mu.Lock()
		l.counters.BytesOut += uint64(n)
		if left -= int(n); left == 0 {
			l.vector = parts[:0]
			if l.spare == nil {
				l.spare = head[:0]
			}
			l.flush(ctx, op)
			return
		}
		if !l.mayGoOn(err, int(n), left, &patience) {
			break
		}
		if op.done || l.overdue(ctx, op.deadline, fault.Unknown) != nil {
			rest := make([]byte, 0, left)
			for _, part := range l.vector {
				rest = append(rest, part...)
			}
			l.vector = parts[:0]
			l.leaveRest(rest, rest)
			return
		}
	}
	l.vector = nil
	l.writing = false
}

var lineEnd = []byte("\r\n")

// allowWriting counts a write and sets its deadline.
func (l *Lane) allowWriting() {
	now := Now()
	if l.writeUntil-now < l.step/2 {
		l.writeUntil = now + l.step
		_ = l.conn.SetWriteDeadline(time.Now().Add(l.step))
	}
	l.counters.Writes++
}

// mayGoOn says whether a writer that wrote n bytes, with more left, may try again. If not, it ends the lane.
func (l *Lane) mayGoOn(err error, n, left int, patience *stuck) bool {
	if l.err != nil {
		return false
	}
	now := Now()
	var timeout net.Error
	if !(errors.As(err, &timeout) && timeout.Timeout()) {
		l.handed -= uint64(left)
		l.fail(l.lost(err))
		return false
	}
	if n > 0 || !patience.is {
		*patience = stuck{now, true}
	}
	if now-patience.since >= l.o.Stall {
		l.handed -= uint64(left)
		l.fail(&fault.Error{Err: fault.Lost, Server: l.o.Server, Detail: "the server takes nothing"})
		return false
	}
	l.findReader()
	return true
}

// leaveRest has a helper continue: the caller's time is over, but the rest of the bytes has to follow, or the lane ends for all
// callers.
func (l *Lane) leaveRest(rest, whole []byte) {
	l.help(func() {
		if l.write(context.Background(), nil, rest, whole) {
			l.flush(context.Background(), nil)
		}
	})
}
