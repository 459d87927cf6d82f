// Package wire turns requests into bytes and bytes into replies, without I/O: memcached's meta text, and its classic text for
// servers without meta.
//
// Each request has one reply, also in classic text, where a hit is answered in two parts. The head says how many bytes follow:
// the value and a trailer, which is "\r\n" in meta text and "\r\nEND\r\n" in classic text.
package wire

import (
	"encoding/base64"
	"strconv"
)

// KeyBytesMax is the longest key that servers take.
const KeyBytesMax = 250

// Protocol is the form in which requests are written.
type Protocol uint8

const (
	// Meta is memcached's meta text (1.6.10 and later).
	Meta Protocol = iota
	// Classic is memcached's first protocol.
	Classic
)

// Verb is the kind of a request.
type Verb uint8

const (
	Get Verb = iota
	Touch
	Set
	Add
	Replace
	Append
	Prepend
	Delete
	Incr
	Decr
	Noop
	Version
	FlushAll
)

// String is the verb's name.
func (v Verb) String() string {
	return [...]string{"get", "touch", "set", "add", "replace", "append", "prepend", "delete", "incr", "decr", "noop", "version", "flush_all"}[v]
}

// stores are the verbs that carry a value.
func (v Verb) stores() bool { return v >= Set && v <= Prepend }

// Stores says whether a request with this verb carries a value.
func (v Verb) Stores() bool { return v.stores() }

// Want is what a get asks for besides the value.
type Want uint8

const (
	WantFlags Want = 1 << iota
	WantCAS
	WantTTL
	WantSize
	WantLastAccess
	WantHitBefore
	// WantNoBump: the read does not change the item's place in the order of eviction.
	WantNoBump
)

// Request is one request. The key must be a [ValidKey].
type Request struct {
	Verb  Verb
	Key   string
	Value []byte
	// Apart: the value is not written with the request. Size bytes of it, and the line's end, have to follow.
	Apart bool
	Size  int64
	Flags uint32
	// Exptime is memcached's: 0 never, up to 30 days relative seconds, above that a Unix time.
	Exptime int64
	// Retime: a get (get and touch) or a count sets Exptime.
	Retime bool
	// CAS is compared if it is not 0, or if Compare is set.
	CAS     uint64
	Compare bool
	Delta   uint64
	// Create makes a counter that does not exist, with the value Initial and the exptime Exptime; meta only.
	Create  bool
	Initial uint64
	Want    Want
	// Lease makes a get that misses create an empty item for Vivify seconds, whose caller wins. With Refresh, one caller also wins
	// an item that has fewer seconds left. Meta only.
	Lease   bool
	Vivify  int64
	Refresh int64
	// Stale: a delete keeps the item, marked stale, for Exptime seconds if Retime is set; a store whose CAS is below the item's
	// stores a value that is marked stale. Meta only.
	Stale bool
	// Empty: a delete removes the value and keeps the item. Meta only.
	Empty bool
	// Base64: the key is not a [ValidKey], and is written in base64. Meta only.
	Base64 bool
	// Opaque is repeated by the reply; meta only.
	Opaque    uint32
	HasOpaque bool
	// Quiet: success has no reply; meta only.
	Quiet bool
}

// ValidKey says whether servers take the key as it is.
func ValidKey(key string) bool {
	if len(key) == 0 || len(key) > KeyBytesMax {
		return false
	}
	for i := 0; i < len(key); i++ {
		if key[i] <= ' ' || key[i] == 0x7f {
			return false
		}
	}
	return true
}

// RawBytesMax is the longest key of any bytes: what fits KeyBytesMax in base64.
const RawBytesMax = KeyBytesMax / 4 * 3

// Can says whether the protocol can express the request. Classic text neither deletes nor counts by CAS, creates no counters, has
// no leases and no stale items, and cannot suppress the reply of a success alone.
func (p Protocol) Can(r *Request) bool {
	if p == Meta {
		return true
	}
	return !r.Create && !r.Quiet && !r.Lease && !r.Stale && !r.Empty && !r.Base64 && (!r.compares() || r.Verb == Set)
}

// Write appends the request as bytes.
func (p Protocol) Write(to []byte, r *Request) []byte {
	if p == Classic {
		return appendClassic(to, r)
	}
	return appendMeta(to, r)
}

func appendMeta(to []byte, r *Request) []byte {
	switch r.Verb {
	case Get, Touch:
		to = appendKey(append(to, "mg "...), r)
		if r.Verb == Get {
			to = append(to, " v"...)
			to = appendWant(to, r.Want)
			if r.Lease {
				to = flag(to, 'N', r.Vivify)
				if r.Refresh > 0 {
					to = flag(to, 'R', r.Refresh)
				}
			}
		}
		if r.Verb == Touch || r.Retime {
			to = flag(to, 'T', r.Exptime)
		}
	case Set, Add, Replace, Append, Prepend:
		to = appendKey(append(to, "ms "...), r)
		to = append(to, ' ')
		to = strconv.AppendInt(to, r.size(), 10)
		if r.Flags != 0 {
			to = unsigned(to, 'F', uint64(r.Flags))
		}
		if r.Exptime != 0 {
			to = flag(to, 'T', r.Exptime)
		}
		switch r.Verb {
		case Add:
			to = append(to, " ME"...)
		case Replace:
			to = append(to, " MR"...)
		case Append:
			to = append(to, " MA"...)
		case Prepend:
			to = append(to, " MP"...)
		}
		to = compare(to, r)
		if r.Stale {
			to = append(to, " I"...)
		}
		if r.Want&WantCAS != 0 {
			to = append(to, " c"...)
		}
	case Delete:
		to = appendKey(append(to, "md "...), r)
		to = compare(to, r)
		if r.Stale {
			to = append(to, " I"...)
		}
		if r.Empty {
			to = append(to, " x"...)
		}
		if r.Retime {
			to = flag(to, 'T', r.Exptime)
		}
	case Incr, Decr:
		to = appendKey(append(to, "ma "...), r)
		to = append(to, " v"...)
		if r.Verb == Decr {
			to = append(to, " MD"...)
		}
		to = unsigned(to, 'D', r.Delta)
		if r.Create {
			to = flag(to, 'N', r.Exptime)
			to = unsigned(to, 'J', r.Initial)
		}
		if r.Retime {
			to = flag(to, 'T', r.Exptime)
		}
		to = compare(to, r)
	case Noop:
		return append(to, "mn\r\n"...)
	case Version, FlushAll:
		return appendClassic(to, r)
	}
	if r.Base64 {
		to = append(to, " b"...)
	}
	if r.HasOpaque {
		to = append(to, " O"...)
		to = strconv.AppendUint(to, uint64(r.Opaque), 36)
	}
	if r.Quiet {
		to = append(to, " q"...)
	}
	return ending(to, r)
}

func appendKey(to []byte, r *Request) []byte {
	if !r.Base64 {
		return append(to, r.Key...)
	}
	// Three bytes at a time, since the library's encoder takes a slice.
	var three [3]byte
	for from := 0; from < len(r.Key); from += 3 {
		n := copy(three[:], r.Key[from:])
		to = base64.StdEncoding.AppendEncode(to, three[:n])
	}
	return to
}

func appendWant(to []byte, want Want) []byte {
	for i, letter := range [...]byte{'f', 'c', 't', 's', 'l', 'h', 'u'} {
		if want&(1<<i) != 0 {
			to = append(to, ' ', letter)
		}
	}
	return to
}

func appendClassic(to []byte, r *Request) []byte {
	switch r.Verb {
	case Get:
		if r.Retime {
			to = append(to, "gats "...)
			to = strconv.AppendInt(to, r.Exptime, 10)
			to = append(to, ' ')
		} else {
			to = append(to, "gets "...)
		}
		to = append(to, r.Key...)
	case Touch:
		to = append(append(to, "touch "...), r.Key...)
		to = append(to, ' ')
		to = strconv.AppendInt(to, r.Exptime, 10)
	case Set, Add, Replace, Append, Prepend:
		name := [...]string{"set ", "add ", "replace ", "append ", "prepend "}[r.Verb-Set]
		if r.compares() {
			name = "cas "
		}
		to = append(append(to, name...), r.Key...)
		to = append(to, ' ')
		to = strconv.AppendUint(to, uint64(r.Flags), 10)
		to = append(to, ' ')
		to = strconv.AppendInt(to, r.Exptime, 10)
		to = append(to, ' ')
		to = strconv.AppendInt(to, r.size(), 10)
		if r.compares() {
			to = append(to, ' ')
			to = strconv.AppendUint(to, r.CAS, 10)
		}
	case Delete:
		to = append(append(to, "delete "...), r.Key...)
	case Incr, Decr:
		name := "incr "
		if r.Verb == Decr {
			name = "decr "
		}
		to = append(append(to, name...), r.Key...)
		to = append(to, ' ')
		to = strconv.AppendUint(to, r.Delta, 10)
	case Noop, Version:
		return append(to, "version\r\n"...)
	case FlushAll:
		return append(to, "flush_all\r\n"...)
	}
	return ending(to, r)
}

func ending(to []byte, r *Request) []byte {
	to = append(to, "\r\n"...)
	if r.Verb.stores() && !r.Apart {
		to = append(append(to, r.Value...), "\r\n"...)
	}
	return to
}

func (r *Request) size() int64 {
	if r.Apart {
		return r.Size
	}
	return int64(len(r.Value))
}

func (r *Request) compares() bool { return r.Compare || r.CAS != 0 }

func compare(to []byte, r *Request) []byte {
	if !r.compares() {
		return to
	}
	return unsigned(to, 'C', r.CAS)
}

func flag(to []byte, letter byte, number int64) []byte {
	return strconv.AppendInt(append(to, ' ', letter), number, 10)
}

func unsigned(to []byte, letter byte, number uint64) []byte {
	return strconv.AppendUint(append(to, ' ', letter), number, 10)
}
