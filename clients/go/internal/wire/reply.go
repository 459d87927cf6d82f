package wire

import (
	"bytes"
	"errors"
	"strings"
)

// LineBytesMax is the longest reply line: a key in base64, an error text or all flags are far below.
const LineBytesMax = 2048

// ValueBytesMax is the longest value that a server may announce: twice memcached's own limit of -I.
const ValueBytesMax = 1<<31 - 1

// ErrGrammar: no server of this protocol sends these bytes here. Nothing after them is trusted.
var ErrGrammar = errors.New("wire: not a reply")

// Status is the meaning of a reply's first word.
type Status uint8

const (
	// Done: the request was carried out (HD; STORED, DELETED, TOUCHED, OK in classic).
	Done Status = iota
	// Value: a value follows.
	Value
	// Absent: there is no such item (EN, NF; END, NOT_FOUND).
	Absent
	// NotStored: the condition of an add, replace, append or prepend did not hold.
	NotStored
	// Exists: the item has another CAS.
	Exists
	// Number: a counter's value, in the line itself (classic).
	Number
	// Barrier is the answer to mn.
	Barrier
	// VersionLine is the answer to version; the text is in Text.
	VersionLine
	// ClientError, ServerError and Unknown are refusals; the text is in Text.
	ClientError
	ServerError
	Unknown
)

// Head is a reply without its value.
type Head struct {
	Status Status
	// Bytes of the value, and of its trailer, if Status is Value.
	Bytes   int
	Trailer []byte

	Flags      uint32
	CAS        uint64
	TTL        int64 // seconds, -1: for ever, 0: not told
	LastAccess int64 // seconds
	Size       int
	Number     uint64
	Opaque     uint32
	HasOpaque  bool
	HitBefore  bool
	Stale      bool // X
	Won        bool // W
	Pending    bool // Z

	// Text is the rest of an error or a version, Key the key of a classic hit. Both lie in the line.
	Text []byte
	Key  []byte
}

var (
	crlf       = []byte("\r\n")
	crlfEnd    = []byte("\r\nEND\r\n")
	clientText = []byte("CLIENT_ERROR")
	serverText = []byte("SERVER_ERROR")
	version    = []byte("VERSION ")
	valueText  = []byte("VALUE ")
)

// Line is the first line of b without its end, and its length with the end; 0 while it is incomplete.
func Line(b []byte) ([]byte, int, error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		if len(b) > LineBytesMax {
			return nil, 0, ErrGrammar
		}
		return nil, 0, nil
	}
	if end == 0 || end > LineBytesMax || b[end-1] != '\r' {
		return nil, 0, ErrGrammar
	}
	return b[:end-1], end + 1, nil
}

// Read reads the line of a reply to a request with this verb.
func (p Protocol) Read(verb Verb, line []byte, h *Head) error {
	*h = Head{}
	if done, err := anyError(line, h); done {
		return err
	}
	var err error
	if p == Classic || verb == Version || verb == FlushAll {
		err = readClassic(verb, line, h)
	} else {
		err = readMeta(line, h)
	}
	if err == nil && !fits(p, verb, h.Status) {
		err = ErrGrammar
	}
	return err
}

// anyError reads errors that any request may be answered with.
func anyError(line []byte, h *Head) (bool, error) {
	text := func(word []byte) []byte { return bytes.TrimPrefix(line[len(word):], []byte(" ")) }
	switch {
	case bytes.Equal(line, []byte("ERROR")) || bytes.HasPrefix(line, []byte("ERROR ")):
		h.Status, h.Text = Unknown, text([]byte("ERROR"))
	case bytes.HasPrefix(line, clientText):
		h.Status, h.Text = ClientError, text(clientText)
	case bytes.HasPrefix(line, serverText):
		h.Status, h.Text = ServerError, text(serverText)
	default:
		return false, nil
	}
	return true, nil
}

// fits says whether a request with this verb can have this answer.
func fits(p Protocol, verb Verb, status Status) bool {
	switch verb {
	case Get:
		// A hit of mg k v always has a value; a get never compares a CAS.
		return status == Value || status == Absent
	case Touch, Delete:
		return status == Done || status == Absent || (verb == Delete && status == Exists)
	case Set, Add, Replace, Append, Prepend:
		return status == Done || status == Absent || status == NotStored || status == Exists
	case Incr, Decr:
		if status == Number {
			return p == Classic
		}
		return status == Value || status == Absent || status == NotStored || status == Exists
	case Noop:
		return status == Barrier || status == VersionLine
	case Version:
		return status == VersionLine
	case FlushAll:
		return status == Done
	}
	return false
}

func readMeta(line []byte, h *Head) error {
	if len(line) < 2 {
		return ErrGrammar
	}
	rest := line[2:]
	switch string(line[:2]) {
	case "HD":
		h.Status = Done
	case "VA":
		h.Status = Value
		if len(rest) == 0 || rest[0] != ' ' {
			return ErrGrammar
		}
		size, after, ok := number(rest[1:])
		if !ok || size > ValueBytesMax {
			return ErrGrammar
		}
		h.Bytes, h.Trailer, rest = int(size), crlf, after
	case "EN", "NF":
		h.Status = Absent
	case "NS":
		h.Status = NotStored
	case "EX":
		h.Status = Exists
	case "MN":
		h.Status = Barrier
		if len(rest) != 0 {
			return ErrGrammar
		}
	default:
		return ErrGrammar
	}
	return readFlags(rest, h)
}

// readFlags reads " f1 c2 …" to the line's end.
func readFlags(rest []byte, h *Head) error {
	for len(rest) > 0 {
		if rest[0] != ' ' {
			return ErrGrammar
		}
		rest = rest[1:]
		// memcached 1.6 before .20 leaves a space at the end of some lines.
		if len(rest) == 0 {
			return nil
		}
		letter := rest[0]
		if letter == ' ' {
			return ErrGrammar
		}
		end := bytes.IndexByte(rest, ' ')
		if end < 0 {
			end = len(rest)
		}
		token := rest[1:end]
		rest = rest[end:]
		var err error
		switch letter {
		case 'f':
			var n uint64
			if n, err = whole(token); n > 1<<32-1 {
				err = ErrGrammar
			}
			h.Flags = uint32(n)
		case 'c':
			h.CAS, err = whole(token)
		case 't':
			if string(token) == "-1" {
				h.TTL = -1
			} else {
				h.TTL, err = seconds(token)
				// Servers round: an item with less than half a second left exists, and 0 means that the reply had no time.
				h.TTL = max(h.TTL, 1)
			}
		case 'l':
			h.LastAccess, err = seconds(token)
		case 's':
			var n int64
			n, err = seconds(token)
			h.Size = int(n)
		case 'h':
			h.HitBefore = string(token) == "1"
		case 'O':
			h.Opaque, err = opaque(token)
			h.HasOpaque = true
		case 'W':
			h.Won = true
		case 'X':
			h.Stale = true
		case 'Z':
			h.Pending = true
		case 'k', 'b':
			// Servers may send flags that were not asked for.
		default:
			return ErrGrammar
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readClassic(verb Verb, line []byte, h *Head) error {
	switch string(line) {
	case "STORED":
		if !verb.stores() {
			return ErrGrammar
		}
		h.Status = Done
		return nil
	case "DELETED":
		if verb != Delete {
			return ErrGrammar
		}
		h.Status = Done
		return nil
	case "TOUCHED":
		if verb != Touch {
			return ErrGrammar
		}
		h.Status = Done
		return nil
	case "OK":
		if verb != FlushAll {
			return ErrGrammar
		}
		h.Status = Done
		return nil
	case "END":
		if verb != Get {
			return ErrGrammar
		}
		h.Status = Absent
		return nil
	case "NOT_FOUND":
		if verb == Get {
			return ErrGrammar
		}
		h.Status = Absent
		return nil
	case "NOT_STORED":
		h.Status = NotStored
		return nil
	case "EXISTS":
		h.Status = Exists
		return nil
	}
	switch {
	case verb == Get && bytes.HasPrefix(line, valueText):
		return readValue(line[len(valueText):], h)
	case (verb == Version || verb == Noop) && bytes.HasPrefix(line, version):
		h.Status, h.Text = VersionLine, line[len(version):]
		return nil
	case verb == Incr || verb == Decr:
		var err error
		h.Status = Number
		// A number that became shorter is stored with spaces behind it.
		h.Number, err = whole(bytes.TrimRight(line, " "))
		return err
	}
	return ErrGrammar
}

// readValue reads "key flags bytes[ cas]".
func readValue(rest []byte, h *Head) error {
	end := bytes.IndexByte(rest, ' ')
	if end <= 0 || end > KeyBytesMax {
		return ErrGrammar
	}
	h.Status, h.Trailer, h.Key = Value, crlfEnd, rest[:end]
	flags, rest, ok := number(rest[end+1:])
	if !ok || flags > 1<<32-1 || len(rest) == 0 || rest[0] != ' ' {
		return ErrGrammar
	}
	h.Flags = uint32(flags)
	size, rest, ok := number(rest[1:])
	if !ok || size > ValueBytesMax {
		return ErrGrammar
	}
	h.Bytes = int(size)
	if len(rest) == 0 {
		return nil
	}
	if rest[0] != ' ' {
		return ErrGrammar
	}
	var err error
	h.CAS, err = whole(rest[1:])
	return err
}

// number reads decimal digits; false if there are none, or more than 64 bits.
func number(b []byte) (uint64, []byte, bool) {
	var n uint64
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		digit := uint64(b[i] - '0')
		if n > (1<<64-1-digit)/10 {
			return 0, nil, false
		}
		n = n*10 + digit
	}
	return n, b[i:], i > 0
}

func whole(b []byte) (uint64, error) {
	n, rest, ok := number(b)
	if !ok || len(rest) != 0 {
		return 0, ErrGrammar
	}
	return n, nil
}

func seconds(b []byte) (int64, error) {
	n, err := whole(b)
	if err != nil || n > 1<<62 {
		return 0, ErrGrammar
	}
	return int64(n), nil
}

// opaque reads a number that Write wrote in base 36.
func opaque(b []byte) (uint32, error) {
	if len(b) == 0 || len(b) > 7 {
		return 0, ErrGrammar
	}
	var n uint64
	for _, digit := range b {
		switch {
		case digit >= '0' && digit <= '9':
			n = n*36 + uint64(digit-'0')
		case digit >= 'a' && digit <= 'z':
			n = n*36 + uint64(digit-'a') + 10
		default:
			return 0, ErrGrammar
		}
	}
	if n > 1<<32-1 {
		return 0, ErrGrammar
	}
	return uint32(n), nil
}

// Counter reads the value of a counter as incr leaves it: digits, and spaces if the number was longer before.
func Counter(value []byte) (uint64, error) {
	return whole(bytes.TrimRight(value, " "))
}

// Stat reads a line of the answer to stats: a figure's name and value, or the end. Without figures, value says why.
func Stat(line []byte) (name, value string, is bool, err error) {
	text := string(line)
	if rest, found := strings.CutPrefix(text, "STAT "); found {
		name, value, _ = strings.Cut(rest, " ")
		return name, value, true, nil
	}
	switch text {
	case "END", "RESET", "OK":
		return "", "", false, nil
	}
	var head Head
	if refused, _ := anyError(line, &head); refused {
		return "", text, false, nil
	}
	return "", "", false, ErrGrammar
}
