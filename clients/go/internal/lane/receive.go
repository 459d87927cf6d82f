package lane

import (
	"bytes"
	"errors"
	"net"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/wire"
)

// receive reads once, for a step at most, and delivers what came. The holder of the reader's role calls it under the mutex, which
// it leaves to read.
func (l *Lane) receive(deadline time.Duration) {
	if l.err != nil {
		return
	}
	// 1. Where the bytes go: into the large value under way, or behind what is in the buffer.
	var into []byte
	if l.bigWant > 0 {
		into = l.bigRoom()
	} else {
		if l.from == l.to {
			l.from, l.to = 0, 0
		} else if l.to == len(l.in) {
			l.to = copy(l.in, l.in[l.from:l.to])
			l.from = 0
		}
		into = l.in[l.to:]
	}
	// 2. Until when: a step, and not much beyond the caller's own deadline.
	now := Now()
	until := l.readUntil - now
	if until < l.step/2 || (deadline != 0 && now+until > deadline+l.step/2) {
		until = l.step
		if deadline != 0 && deadline-now < until {
			until = max(deadline-now, stepMin)
		}
		l.readUntil = now + until
		_ = l.conn.SetReadDeadline(time.Now().Add(until))
	}
	l.mu.Unlock()
	n, err := l.conn.Read(into)
	l.mu.Lock()
	l.counters.Reads++
	if l.err != nil {
		return
	}
	// 3. What came.
	if n > 0 {
		l.counters.BytesIn += uint64(n)
		l.isSilent = false
		if l.bigWant > 0 {
			l.big = l.big[:len(l.big)+n]
		} else {
			l.to += n
		}
		if broken := l.deliver(); broken != nil {
			l.fail(broken)
			return
		}
	}
	if err == nil {
		// A slow server that is never silent still makes other callers wait.
		if now-l.looked >= l.step {
			l.expire(now)
		}
		return
	}
	var timeout net.Error
	if !(errors.As(err, &timeout) && timeout.Timeout()) {
		l.fail(l.lost(err))
		return
	}
	// 4. Nothing more for now: checks deadlines, and whether the server stalls.
	now = Now()
	if n == 0 && l.ring.count > 0 {
		if !l.isSilent {
			l.silent, l.isSilent = now, true
		} else if now-l.silent >= l.o.Stall {
			l.fail(&fault.Error{Err: fault.Lost, Server: l.o.Server, Detail: "the server owes replies and is silent"})
			return
		}
	}
	l.expire(now)
}

// expire wakes and abandons the ops of others whose time is over. The reader checks its own op itself.
func (l *Lane) expire(now time.Duration) {
	l.looked = now
	for i := range l.ring.count {
		s := l.ring.at(i)
		if s.op == nil || !s.op.waiting || s.op.lead || now < s.op.deadline {
			continue
		}
		s.op.Err = &fault.Error{Err: fault.Timeout, Outcome: fault.Unknown, Server: l.o.Server}
		s.op.done = true
		s.op.rouse()
		s.op = nil
		l.counters.Abandoned++
	}
}

// bigRoom is where the next bytes of a large value go: memory for all of it if it is not too large, else as much again as has
// come, since an announced length may be false.
func (l *Lane) bigRoom() []byte {
	if len(l.big) == cap(l.big) {
		size := min(l.bigWant, max(2*len(l.big), wholeBytes))
		bigger := make([]byte, len(l.big), size)
		copy(bigger, l.big)
		l.big = bigger
	}
	return l.big[len(l.big):min(cap(l.big), l.bigWant)]
}

// deliver gives all complete replies to their slots.
func (l *Lane) deliver() *fault.Error {
	for {
		if l.bigWant > 0 {
			if len(l.big) < l.bigWant {
				return nil
			}
			value := l.big
			l.big, l.bigWant = nil, 0
			if err := l.reply(&l.bigHead, value, true); err != nil {
				return err
			}
		}
		unread := l.in[l.from:l.to]
		if len(unread) == 0 {
			return nil
		}
		if l.ring.count == 0 {
			return l.protocol("a reply to nothing", unread)
		}
		line, taken, err := wire.Line(unread)
		if err != nil {
			return l.protocol("not a line", unread)
		}
		if taken == 0 {
			return nil
		}
		var head wire.Head
		verb := l.ring.at(0).verb
		if l.ring.at(0).quiet && string(line) == "MN" {
			verb = wire.Noop
		}
		if err := l.o.Protocol.Read(verb, line, &head); err != nil {
			return l.protocol("not a reply to the request", line)
		}
		var value []byte
		if head.Status == wire.Value {
			want := head.Bytes + len(head.Trailer)
			if len(unread)-taken < want {
				if taken+want <= len(l.in) {
					return nil
				}
				if key := l.ring.at(0).key; head.Key != nil && key != "" && string(head.Key) != key {
					return l.protocol("another key's value", line)
				}
				l.bigHead, l.bigWant = head, want
				l.bigHead.Key, l.bigHead.Text = nil, nil
				l.big = make([]byte, 0, min(want, wholeBytes))

				l.big = append(l.big, unread[taken:]...)
				l.from = l.to
				return nil
			}
			value = unread[taken : taken+want]
			taken += want
		}
		l.from += taken
		if err := l.reply(&head, value, false); err != nil {
			return err
		}
	}
}

// reply gives one reply to the oldest slot (I2).
func (l *Lane) reply(head *wire.Head, value []byte, own bool) *fault.Error {
	s := l.ring.at(0)
	l.counters.Replies++
	if head.Status == wire.Value {
		if !bytes.Equal(value[head.Bytes:], head.Trailer) {
			return l.protocol("a value without its end", nil)
		}
		value = value[:head.Bytes]
		if head.Key != nil && s.key != "" && string(head.Key) != s.key {
			return l.protocol("another key's value", head.Key)
		}
	}
	refused := head.Status >= wire.ClientError
	if s.verify && !refused && head.Status != wire.Barrier && !s.quiet {
		if !head.HasOpaque || head.Opaque != s.opaque {
			return l.protocol("an answer to another question", nil)
		}
	}
	op := s.op
	if op != nil {
		text := ""
		if refused || head.Status == wire.VersionLine {
			text = string(head.Text)
			if text == "" {
				text = "ERROR"
			}
		}
		l.take(op, s, head, value, text, own)
	}
	verb := s.verb
	s.opaque++
	if s.quiet && head.Status != wire.Barrier {
		return l.trust(verb, head)
	}
	l.owed--
	if len(s.verbs) > 1 {
		s.verbs = s.verbs[1:]
		s.verb = s.verbs[0]
	}
	if s.left--; s.left == 0 {
		l.ring.pop()
		if op != nil {
			op.done = true
			if op.waiting {
				op.rouse()
			}
		}
		if l.room != nil && l.owed < l.o.InFlight {
			l.wakeRoom()
		}
	}
	return l.trust(verb, head)
}

// take puts a reply into its op.
func (l *Lane) take(op *Op, s *slot, head *wire.Head, value []byte, text string, own bool) {
	op.Head = *head
	op.Head.Text, op.Head.Key = nil, nil
	op.Text = text
	if s.quiet {
		if head.Status == wire.Barrier {
			op.Whole = true
		} else {
			op.Results = append(op.Results, Result{Head: op.Head, Text: text, Opaque: head.Opaque})
		}
		return
	}
	from := len(op.Dst)
	if own && !op.Many && from == 0 && cap(op.Dst) < len(value) {
		op.Dst = value
	} else if head.Status == wire.Value {
		op.Dst = append(op.Dst, value...)
	}
	if op.Many {
		op.Results = append(op.Results, Result{op.Head, from, len(op.Dst), text, s.opaque})
	}
}

// trust ends the lane after a refusal that leaves open whether the server took the value behind the request for a request.
func (l *Lane) trust(verb wire.Verb, head *wire.Head) *fault.Error {
	if verb.Stores() && (head.Status == wire.ClientError || head.Status == wire.Unknown) {
		return l.protocol("a store refused as malformed", head.Text)
	}
	return nil
}

func (l *Lane) protocol(what string, bytes []byte) *fault.Error {
	detail := what
	if len(bytes) > 0 {
		detail += ": " + quoted(bytes[:min(len(bytes), 64)])
	}
	return &fault.Error{Err: fault.Protocol, Server: l.o.Server, Detail: detail}
}

func quoted(b []byte) string {
	text := make([]byte, 0, len(b)+2)
	text = append(text, '"')
	for _, c := range b {
		if c < ' ' || c > '~' {
			c = '.'
		}
		text = append(text, c)
	}
	return string(append(text, '"'))
}
