package lane

import (
	"sync"
	"time"

	"larder.example/clients/go/internal/wire"
)

// Op is what one caller waits for: one reply, or those of a group of requests that are sent together.
//
// An op belongs to its caller, except between Submit and the end of Wait: then only the holder of the lane's mutex changes it.
// The lane does not know an abandoned op any more.
type Op struct {
	// Dst is what values are appended to.
	Dst []byte
	// Head is the reply; of a group, the last one.
	Head wire.Head
	// Text is the text of a refusal or a version.
	Text string
	// Err is set if the lane failed before everything was answered.
	Err error
	// Results are those of a group, in order; of a quiet group, the refusals.
	Results []Result
	// Many: every reply goes to Results.
	Many bool
	// Whole: the barrier of a quiet group was answered.
	Whole bool
	// Trial belongs to the fleet: the op was admitted to a server that came back.
	Trial bool

	wake     chan struct{}
	done     bool
	waiting  bool
	lead     bool
	deadline time.Duration
	number   [24]byte
}

// Result is one reply of a group.
type Result struct {
	Head wire.Head
	// From and To are the place of its value in Dst.
	From, To int
	// Text is the text of a refusal.
	Text string
	// Opaque is that of the request.
	Opaque uint32
}

var ops = pool()

func pool() *sync.Pool {
	return &sync.Pool{New: func() any { return &Op{wake: make(chan struct{}, 1)} }}
}

// NewOp takes an op from the pool.
func NewOp() *Op {
	return ops.Get().(*Op)
}

// Init prepares an op that is not from the pool.
func (o *Op) Init() { o.wake = make(chan struct{}, 1) }

// Free puts the op back into the pool. It keeps Results, emptied.
func (o *Op) Free() {
	select {
	case <-o.wake:
	default:
	}
	clear(o.Results)
	*o = Op{wake: o.wake, Results: o.Results[:0]}
	ops.Put(o)
}

// Again prepares the op for another try, after a failure.
func (o *Op) Again(dst []byte) {
	select {
	case <-o.wake:
	default:
	}
	clear(o.Results)
	*o = Op{wake: o.wake, Dst: dst, Results: o.Results[:0]}
}

// Small is memory of the op for a short value.
func (o *Op) Small() []byte { return o.number[:0] }

// rouse wakes the owner. Under the mutex. A second call before the owner has woken changes nothing.
func (o *Op) rouse() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// slot stands for owed replies: those of requests that were encoded, in the order of their bytes.
type slot struct {
	// op is nil after it was abandoned: its replies are read and dropped.
	op   *Op
	verb wire.Verb
	// verbs, of a group of several, are those of the replies in order; verb is the next one.
	verbs []wire.Verb
	key   string
	start uint64
	left  int
	// quiet: replies are refusals, until the barrier's.
	quiet  bool
	verify bool
	opaque uint32
}

// ring holds the slots, oldest first.
type ring struct {
	slots []slot
	head  int
	count int
}

func (r *ring) push(s slot) {
	if r.count == len(r.slots) {
		bigger := make([]slot, max(64, 2*len(r.slots)))
		for i := range r.count {
			bigger[i] = *r.at(i)
		}
		r.slots, r.head = bigger, 0
	}
	r.slots[(r.head+r.count)&(len(r.slots)-1)] = s
	r.count++
}

func (r *ring) at(i int) *slot { return &r.slots[(r.head+i)&(len(r.slots)-1)] }

func (r *ring) pop() {
	r.slots[r.head] = slot{}
	r.head = (r.head + 1) & (len(r.slots) - 1)
	r.count--
}
