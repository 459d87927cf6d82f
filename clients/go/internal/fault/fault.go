// Package fault holds the errors of the client, sorted by whose fault they are, so that the layers below the public
// package can return what the public package exports.
package fault

import "errors"

// Outcome says what is known about a request that failed.
type Outcome uint8

const (
	// Answered: the server has answered, and the error (or its absence) says what it did.
	Answered Outcome = iota
	// NotSent: no byte of the request was given to the kernel, so nothing was applied.
	NotSent
	// Unknown: bytes of the request were on their way and no answer came; it may have been applied.
	Unknown
)

// String is the outcome's name.
func (o Outcome) String() string {
	switch o {
	case Answered:
		return "answered"
	case NotSent:
		return "not sent"
	case Unknown:
		return "unknown"
	}
	return "no outcome"
}

// The sentinels; the public package says what each means.
var (
	Miss      = errors.New("larder: no such key")
	Conflict  = errors.New("larder: the item has changed since it was read")
	NotStored = errors.New("larder: not stored")

	BadKey    = errors.New("larder: a key has 1 to 250 bytes, none of them a space or a control character")
	TooLarge  = errors.New("larder: the value is too large for the server")
	BadTTL    = errors.New("larder: a time to live is not negative")
	NotNumber = errors.New("larder: the value is not a number")
	Closed    = errors.New("larder: the client is closed")
	Auth      = errors.New("larder: the server does not know this user with this password")

	ServerMemory = errors.New("larder: the server is out of memory")
	Server       = errors.New("larder: the server refused the request")
	Protocol     = errors.New("larder: the server's reply is not understood")

	Timeout = errors.New("larder: no answer in time")
	Down    = errors.New("larder: the server is down")
	Lost    = errors.New("larder: the connection was lost")
)

// NeedsMeta is the cause of an error where classic text cannot express a request.
var NeedsMeta = errors.New("needs meta text")

// Error is a failure with more details than its sentinel.
type Error struct {
	// Err is one of the sentinels; errors.Is finds it.
	Err error
	// Outcome says whether the request may have been applied.
	Outcome Outcome
	// Server is the server's name, where one is at fault.
	Server string
	// Detail is the server's line or the system's error.
	Detail string
	// Cause is the error below, a context's among them; may be nil.
	Cause error
}

// Error is the sentinel's text with server and detail.
func (e *Error) Error() string {
	text := e.Err.Error()
	if e.Server != "" {
		text += " (" + e.Server + ")"
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Outcome == Unknown {
		text += " (may have been applied)"
	}
	return text
}

// Unwrap gives the sentinel and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// Of returns the outcome of an error.
func Of(err error) Outcome {
	var e *Error
	if errors.As(err, &e) {
		return e.Outcome
	}
	switch err {
	case BadKey, BadTTL, Closed, Auth, Down:
		return NotSent
	}
	return Answered
}
