package larder

import (
	"errors"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

// Answers: not a failure of the cache. The connection is kept.
var (
	// ErrMiss: there is no such key.
	ErrMiss = fault.Miss
	// ErrConflict: the item has another CAS than was expected.
	ErrConflict = fault.Conflict
	// ErrNotStored: the condition of an add, replace, append or prepend did not hold.
	ErrNotStored = fault.NotStored
)

// The caller's. Nothing was applied, except that a set whose value is too large for the server deletes the old value.
var (
	ErrBadKey    = fault.BadKey
	ErrTooLarge  = fault.TooLarge
	ErrBadTTL    = fault.BadTTL
	ErrNotNumber = fault.NotNumber
	ErrClosed    = fault.Closed
	// ErrAuth: the server refused the user and password of Config.Auth. For 5 s they are not tried again.
	ErrAuth = fault.Auth
)

// The server's. Nothing was applied, except perhaps after ErrProtocol, which ends the connection.
var (
	ErrServerMemory = fault.ServerMemory
	ErrServer       = fault.Server
	ErrProtocol     = fault.Protocol
)

// The network's.
var (
	// ErrTimeout: no answer in time, or the context ended; errors.Is finds the context's error as well.
	ErrTimeout = fault.Timeout
	// ErrServerDown: the server could not be reached, and nothing was sent.
	ErrServerDown = fault.Down
	// ErrLost: the connection ended before the answer came.
	ErrLost = fault.Lost
)

// Error adds the server and details to a sentinel.
type Error = fault.Error

// Outcome says what is known about a request that failed.
type Outcome = fault.Outcome

// Outcomes.
const (
	// Answered: the server has answered. The error, or its absence, says what it did.
	Answered = fault.Answered
	// NotSent: nothing was sent, so nothing was applied.
	NotSent = fault.NotSent
	// Unknown: the request was sent, and may have been applied.
	Unknown = fault.Unknown
)

// Applied says what is known about the request that ended with err.
func Applied(err error) Outcome { return fault.Of(err) }

// FaultKind says whose fault an error is.
type FaultKind uint8

const (
	NoFault FaultKind = iota
	FaultAnswer
	FaultCaller
	FaultServer
	FaultNetwork
	// FaultOther: not an error of this package.
	FaultOther
)

// Fault says whose fault err is.
func Fault(err error) FaultKind {
	if err == nil {
		return NoFault
	}
	for kind, sentinels := range [...][]error{
		FaultAnswer:  {ErrMiss, ErrConflict, ErrNotStored},
		FaultCaller:  {ErrBadKey, ErrTooLarge, ErrBadTTL, ErrNotNumber, ErrClosed, ErrAuth},
		FaultServer:  {ErrServerMemory, ErrServer, ErrProtocol},
		FaultNetwork: {ErrTimeout, ErrServerDown, ErrLost},
	} {
		for _, sentinel := range sentinels {
			if errors.Is(err, sentinel) {
				return FaultKind(kind)
			}
		}
	}
	return FaultOther
}

// names of the sentinels, for metrics and logs.
var names = []struct {
	err  error
	name string
}{
	{ErrMiss, "miss"}, {ErrConflict, "conflict"}, {ErrNotStored, "not-stored"},
	{ErrBadKey, "bad-key"}, {ErrTooLarge, "too-large"}, {ErrBadTTL, "bad-ttl"}, {ErrNotNumber, "not-number"}, {ErrClosed, "closed"},
	{ErrAuth, "auth"},
	{ErrServerMemory, "server-memory"}, {ErrServer, "server"}, {ErrProtocol, "protocol"},
	{ErrTimeout, "timeout"}, {ErrServerDown, "down"}, {ErrLost, "lost"},
}

// ErrorName is a short word for an error: "miss", "timeout", …; "other" for errors that are not this package's, "" for none.
func ErrorName(err error) string {
	if err == nil {
		return ""
	}
	for _, sentinel := range names {
		if errors.Is(err, sentinel.err) {
			return sentinel.name
		}
	}
	return "other"
}

// answer turns a reply that is no success into its error.
func answer(verb wire.Verb, status wire.Status, text, server string) error {
	switch status {
	case wire.Done, wire.Value, wire.Number, wire.Barrier, wire.VersionLine:
		return nil
	case wire.Absent:
		return ErrMiss
	case wire.NotStored:
		return ErrNotStored
	case wire.Exists:
		return ErrConflict
	case wire.ClientError, wire.ServerError, wire.Unknown:
	}
	return &Error{Err: lane.Refusal(verb, status, text), Server: server, Detail: text}
}

// needsMeta is the error of a request that classic text cannot express.
func needsMeta(server string) error {
	return &Error{Err: ErrServer, Outcome: NotSent, Server: server, Detail: fault.NeedsMeta.Error(), Cause: fault.NeedsMeta}
}
