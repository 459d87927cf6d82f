package lane

import (
	"context"
	"time"

	"larder.example/clients/go/internal/wire"
)

// Group is requests that are encoded already and are sent together.
type Group struct {
	Bytes []byte
	Verb  wire.Verb
	// Verbs, if there are several, are those of the replies in order. They must not change until Wait has returned.
	Verbs []wire.Verb
	// Replies is how many replies are owed. A quiet group owes one, its barrier's; refusals come besides.
	Replies int
	Quiet   bool
	// Opaque of the first request; the others count up from it. Used if Verify is set.
	Opaque uint32
	Verify bool
}

// Submit sends a group. Unless it returns an error, Wait has to be called with the same op.
func (l *Lane) Submit(ctx context.Context, op *Op, g Group, deadline time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enter(ctx, deadline); err != nil {
		return err
	}
	s := slot{op: op, verb: g.Verb, start: l.queued, left: g.Replies, quiet: g.Quiet, verify: g.Verify, opaque: g.Opaque}
	if len(g.Verbs) > 0 {
		s.verbs, s.verb = g.Verbs, g.Verbs[0]
	}
	l.out = append(l.out, g.Bytes...)
	l.queued += uint64(len(g.Bytes))
	op.Many = true
	l.admit(s, deadline)
	if !l.writing {
		l.flush(ctx, op)
	}
	return nil
}
