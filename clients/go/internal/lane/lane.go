// Package lane is one connection that all callers of a server share.
//
//	callers ──encode──► buffer ──writer──► connection ──reader──► ring of slots ──► callers
//
// The lane has no goroutine. A caller that finds no other writing writes for all callers that have encoded by then. A caller that
// waits and finds no other reading reads for all callers whose replies come before its own. So 256 callers together need a few
// system calls, where each by itself would need two.
//
//	I1  every op ends exactly once: by its reply, by the lane's failure, or abandoned by its owner
//	I2  a reply goes to the oldest open slot and no other; with Verify an opaque checks that
//	I3  after Wait has returned, nothing touches an op or what it appends to: both happen under the mutex
//	I4  requests are written whole, one after the other
//	I5  a caller that writes much, or cannot go on writing, first makes sure that some caller reads
//	I6  an abandoned slot stays until its reply has come and was dropped
//	I7  a server that owes replies and sends nothing for Stall is given up: not sent, or unknown, by what was written
//	I8  after bytes that fit no grammar, or the reply to another request, nothing is trusted
//	I9  (dialing: package larder)
//	I10 after Close no goroutine is left
//
// The reader checks deadlines for all waiting callers. It wakes once per step (an eighth of the timeout, at most 32 ms): no timer
// is made for an op, and a timeout is late by at most one step.
package lane

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/wire"
)

const (
	// readBytes is the size of the receive buffer. A longer reply is read into memory of its own.
	readBytes = 32 << 10
	// keepBytes: buffers that grew beyond this are not kept.
	keepBytes = 256 << 10
	// wholeBytes: memory for a value up to this size is allocated at once, for a longer one as its bytes arrive.
	wholeBytes = 1 << 20
	// writeBytesMax: callers wait while more than this is to be written.
	writeBytesMax = 1 << 20
	// readerFrom: a caller that writes more than this first makes sure that some caller reads (I5).
	readerFrom = 32 << 10
	// writesMax: after this many writes for others a caller goes on to its own reply.
	writesMax = 8
	stepMin   = time.Millisecond
	// A reader that wakes every 16 ms makes a get of one caller 3 % slower than one that wakes every 32 ms, and 5 % slower than one
	// that never wakes.
	stepMax = 32 * time.Millisecond
)

var epoch = time.Now()

// Now is the clock of deadlines. It never goes back.
func Now() time.Duration { return time.Since(epoch) }

// Options are a lane's limits.
type Options struct {
	// Server is the name for errors.
	Server   string
	Protocol wire.Protocol
	// Timeout is the usual timeout of ops; it decides how often deadlines are checked.
	Timeout time.Duration
	// Stall: the lane fails when nothing has come for this long while replies were owed.
	Stall time.Duration
	// InFlight is how many replies may be owed.
	InFlight int
	// Vector: a value from this length on is written from where it is; 0: never.
	Vector int
	// Verify puts an opaque into every request, where the protocol has them.
	Verify bool
}

// Counters are what a lane has done so far.
type Counters struct {
	Ops, Replies, Writes, Reads, Yields, Abandoned, Helpers uint64
	BytesOut, BytesIn                                       uint64
}

// Lane is one connection.
type Lane struct {
	conn net.Conn
	o    Options
	step time.Duration
	live atomic.Bool

	mu       sync.Mutex
	err      *fault.Error
	counters Counters
	ring     ring
	owed     int
	// draining is the error of calls that come too late.
	draining error
	opaque   uint32

	// out is what is to be written. handed counts the bytes that were given to the kernel or are about to be.
	out, spare []byte
	queued     uint64
	handed     uint64
	writing    bool
	writeUntil time.Duration
	vector     net.Buffers

	reading   bool
	in        []byte
	from, to  int
	readUntil time.Duration
	silent    time.Duration
	isSilent  bool
	looked    time.Duration

	// big is a value that does not fit the buffer; bigWant is its length with its trailer.
	big     []byte
	bigWant int
	bigHead wire.Head

	// room is closed when callers that wait for room should look again.
	room    chan struct{}
	helpers sync.WaitGroup
}

// New makes a lane of a new connection.
func New(conn net.Conn, o Options) *Lane {
	l := &Lane{conn: conn, o: o, in: make([]byte, readBytes)}
	l.step = min(max(o.Timeout/8, stepMin), stepMax)
	l.readUntil, l.writeUntil, l.looked = Now(), Now(), Now()
	l.live.Store(true)
	return l
}

// Alive says whether the lane takes requests.
func (l *Lane) Alive() bool { return l.live.Load() }

// Protocol is the protocol that is spoken.
func (l *Lane) Protocol() wire.Protocol { return l.o.Protocol }

// Err is why the lane is not alive.
func (l *Lane) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return nil
	}
	return l.err
}

// Counters returns what was done so far.
func (l *Lane) Counters() Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counters
}

// Close fails all waiting callers with err and returns when no goroutine of the lane is left.
func (l *Lane) Close(err error) {
	l.mu.Lock()
	l.fail(&fault.Error{Err: err, Server: l.o.Server})
	l.mu.Unlock()
	l.helpers.Wait()
}

// Drain takes no more requests: later ones fail with err. Those that were taken are answered.
func (l *Lane) Drain(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = err
	l.live.Store(false)
	l.wakeRoom()
}

// Idle says that nothing is under way.
func (l *Lane) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err != nil || (l.ring.count == 0 && len(l.out) == 0 && !l.writing)
}

// Do makes a request with one reply.
func (l *Lane) Do(ctx context.Context, op *Op, r *wire.Request, deadline time.Duration) error {
	l.mu.Lock()
	if err := l.enter(ctx, deadline); err != nil {
		l.mu.Unlock()
		return err
	}
	s := slot{op: op, verb: r.Verb, key: r.Key, start: l.queued, left: 1}
	if l.o.Verify && l.o.Protocol == wire.Meta && r.Verb < wire.Noop {
		l.opaque = (l.opaque + 1) & (1<<31 - 1)
		r.Opaque, r.HasOpaque = l.opaque, true
		s.verify, s.opaque = true, l.opaque
	}
	before := len(l.out)
	if apart := l.o.Vector > 0 && len(r.Value) >= l.o.Vector && !l.writing && before == 0; apart {
		l.admit(s, deadline)
		l.flushApart(ctx, op, r)
		return l.wait(ctx, op)
	}
	l.out = l.o.Protocol.Write(l.out, r)
	l.queued += uint64(len(l.out) - before)
	l.admit(s, deadline)
	if !l.writing {
		l.flush(ctx, op)
	}
	return l.wait(ctx, op)
}

// Wait returns when the op's replies have come, or cannot come any more.
func (l *Lane) Wait(ctx context.Context, op *Op) error {
	l.mu.Lock()
	return l.wait(ctx, op)
}

func (l *Lane) admit(s slot, deadline time.Duration) {
	s.op.deadline = deadline
	l.ring.push(s)
	l.owed += s.left
	l.counters.Ops += uint64(s.left)
}

// enter waits for room. While it waits, it reads if no other caller does: its own replies may take the room.
func (l *Lane) enter(ctx context.Context, deadline time.Duration) error {
	for {
		if l.err != nil {
			return l.failure(fault.NotSent)
		}
		if l.draining != nil {
			return l.draining
		}
		if l.owed < l.o.InFlight && len(l.out) < writeBytesMax {
			return nil
		}
		if err := l.overdue(ctx, deadline, fault.NotSent); err != nil {
			return err
		}
		if !l.reading {
			l.reading = true
			l.receive(0)
			l.handOver()
			continue
		}
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.mu.Unlock()
		timer := time.NewTimer(deadline - Now())
		select {
		case <-room:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		l.mu.Lock()
	}
}

// overdue says that a caller has to stop waiting.
func (l *Lane) overdue(ctx context.Context, deadline time.Duration, outcome fault.Outcome) error {
	if cause := ctx.Err(); cause != nil {
		return &fault.Error{Err: fault.Timeout, Outcome: outcome, Server: l.o.Server, Cause: cause}
	}
	if Now() >= deadline {
		return &fault.Error{Err: fault.Timeout, Outcome: outcome, Server: l.o.Server}
	}
	return nil
}

// flush writes everything that is to be written. Under the mutex, which it leaves to write.
func (l *Lane) flush(ctx context.Context, op *Op) {
	l.writing = true
	if l.ring.count > 1 {
		// Callers that can run now add their requests. Without this, a processor would make one write for each op.
		l.counters.Yields++
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
	}
	for writes := 0; len(l.out) > 0 && l.err == nil; writes++ {
		if writes == writesMax {
			l.help(func() { l.flush(context.Background(), nil) })
			return
		}
		b := l.out
		l.out, l.spare = l.spare[:0], nil
		l.handed += uint64(len(b))
		if len(b) > readerFrom && l.owed > 1 {
			l.findReader()
		}
		if !l.write(ctx, op, b, b) {
			return
		}
	}
	l.writing = false
}

// help runs f, which begins and ends under the mutex, in a goroutine of its own.
func (l *Lane) help(f func()) {
	l.counters.Helpers++
	l.helpers.Add(1)
	go func() {
		defer l.helpers.Done()
		l.mu.Lock()
		defer l.mu.Unlock()
		f()
	}()
}

// findReader makes sure that some caller reads while much is written (I5).
func (l *Lane) findReader() {
	if l.reading || l.err != nil {
		return
	}
	l.reading = true
	if l.handOver(); l.reading {
		return
	}
	l.reading = true
	l.help(func() {
		for l.writing && l.err == nil {
			l.receive(0)
		}
		l.handOver()
	})
}

// wait is called under the mutex and leaves it.
func (l *Lane) wait(ctx context.Context, op *Op) error {
	defer l.mu.Unlock()
	stop := ctx.Done()
	for !op.done {
		if !l.reading {
			l.reading, op.lead = true, true
		}
		if op.lead {
			l.receive(op.deadline)
			if !op.done {
				if err := l.overdue(ctx, op.deadline, fault.Unknown); err != nil {
					l.abandon(op)
					l.leave(op)
					return err
				}
			}
			continue
		}
		op.waiting = true
		l.mu.Unlock()
		select {
		case <-op.wake:
		case <-stop:
		}
		l.mu.Lock()
		op.waiting = false
		if !op.done && ctx.Err() != nil {
			err := l.overdue(ctx, op.deadline, fault.Unknown)
			l.abandon(op)
			l.leave(op)
			return err
		}
	}
	l.leave(op)
	return op.Err
}

// leave gives the reader's role away, if the op's owner has it.
func (l *Lane) leave(op *Op) {
	if op.lead {
		op.lead = false
		l.handOver()
	}
}

// handOver gives the reader's role to the waiting owner of the oldest slot. If there is none, no caller reads until one waits.
func (l *Lane) handOver() {
	for i := range l.ring.count {
		if op := l.ring.at(i).op; op != nil && op.waiting && !op.done {
			op.lead = true
			op.rouse()
			return
		}
	}
	l.reading = false
	l.wakeRoom()
}

// abandon forgets an op whose owner leaves. Its replies will be dropped (I3, I6).
func (l *Lane) abandon(op *Op) {
	for i := range l.ring.count {
		if s := l.ring.at(i); s.op == op {
			s.op = nil
			l.counters.Abandoned++
		}
	}
}

func (l *Lane) wakeRoom() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

func (l *Lane) lost(err error) *fault.Error {
	return &fault.Error{Err: fault.Lost, Server: l.o.Server, Detail: err.Error(), Cause: err}
}

// failure is the error of an op that the end of the lane has met.
func (l *Lane) failure(outcome fault.Outcome) error {
	e := *l.err
	e.Outcome = outcome
	return &e
}

// fail ends the lane. The error of every op says whether a byte of it was given to the kernel.
func (l *Lane) fail(err *fault.Error) {
	if l.err != nil {
		return
	}
	l.err = err
	l.live.Store(false)
	_ = l.conn.Close()
	for ; l.ring.count > 0; l.ring.pop() {
		s := l.ring.at(0)
		if s.op == nil {
			continue
		}
		outcome := fault.NotSent
		if s.start < l.handed {
			outcome = fault.Unknown
		}
		s.op.Err = l.failure(outcome)
		s.op.done = true
		s.op.rouse()
	}
	l.owed, l.out = 0, nil
	l.wakeRoom()
}
