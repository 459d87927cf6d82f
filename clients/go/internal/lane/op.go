package lane

import (
	"sync"
	"time"

	"larder.example/clients/go/internal/wire"
)

// Op is what one caller waits for: one reply, or those of a group of requests that go together.
//
// An op belongs to its caller but for the time between Submit and the end of Wait, when what is in it changes under
// the lane's mutex alone. After an abandonment the lane has forgotten it.
type Op struct {
	// Dst is what values are appended to.
	Dst []byte
	// Head is the reply; of a group the last one.
	Head wire.Head
	// Text is what a refusal or a version said.
	Text string
	// Err is set if the lane failed before all was answered.
	Err error
	// Results are those of a group, in order; of a quiet group those that were refused.
	Results []Result
	// Many: every reply goes to Results.
	Many bool
	// Whole: the barrier of a quiet group has answered.
	Whole bool
	// Trial is the fleet's: the op was admitted to a server that came back.
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
	// From and To are where its value lies in Dst.
	From, To int
	// Text is what a refusal said.
	Text string
	// Opaque says which request it answers.
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

// Init makes an op that is not the pool's ready for use.
func (o *Op) Init() { o.wake = make(chan struct{}, 1) }

// Free gives it back; Results stay with it, emptied.
func (o *Op) Free() {
	select {
	case <-o.wake:
	default:
	}
	clear(o.Results)
	*o = Op{wake: o.wake, Results: o.Results[:0]}
	ops.Put(o)
}

// Again makes it ready to be asked once more, after a failure.
func (o *Op) Again(dst []byte) {
	select {
	case <-o.wake:
	default:
	}
	clear(o.Results)
	*o = Op{wake: o.wake, Dst: dst, Results: o.Results[:0]}
}

// Small is room for a short value that belongs to the op.
func (o *Op) Small() []byte { return o.number[:0] }

// rouse tells the owner that something has changed. Under the mutex; a second word before the first was heard says
// nothing new.
func (o *Op) rouse() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// slot is what the lane owes an answer for: requests that were encoded, in the order of their bytes.
type slot struct {
	// op is nil once it was abandoned: replies are read all the same, and thrown away.
	op   *Op
	verb wire.Verb
	// verbs, of a group of several, are the replies' in order; verb is the next one's.
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
