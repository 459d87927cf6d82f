package larder

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/shard"
)

// Server is where a server is, and how it is known.
type Server struct {
	// Address is host:port, or the path of a Unix socket.
	Address string
	// Name is what placement hashes, the address as written if it is empty.
	Name string
	// Weight is its share, 1 if it is 0.
	Weight int
}

// Protocol is what is spoken.
type Protocol = fleet.Protocol

const (
	// Auto asks each server for its version: meta text from memcached 1.6.10 on, else classic.
	Auto = fleet.Auto
	// MetaText is memcached's meta protocol.
	MetaText = fleet.Meta
	// ClassicText is memcached's first protocol. What it cannot say is refused with ErrServer, and nothing is sent.
	ClassicText = fleet.Classic
)

// Config is how a client works. What is left at its zero value is as the comment says.
type Config struct {
	Servers []Server
	// Shard is [shard.Ketama].
	Shard shard.Preset
	// Protocol is Auto.
	Protocol Protocol
	// Timeout of a whole operation, waiting and dialing included, is 500 ms.
	Timeout time.Duration
	// DialTimeout of a connection with its greeting is 1 s.
	DialTimeout time.Duration
	// StallTimeout is 2 s: a server that owes replies and sends nothing for so long loses the connection.
	StallTimeout time.Duration
	// Lanes is how many connections a server gets for values that are not large: 1, at most 8. A key has one of them.
	Lanes int
	// LargeBytes is 65,536: larger values are set on a connection of their own.
	LargeBytes int
	// InFlight is how many replies a lane may be owed: 4,096. Further callers wait, within Timeout.
	InFlight int
	// NoRetryReads tells [ErrLost] at once when a connection was lost before Get or GetItem was answered. Without it they are
	// asked once more, within Timeout, as reads change nothing.
	NoRetryReads bool
	// Failure is [FailFast].
	Failure Failure
	// KeyPrefix stands before each key.
	KeyPrefix string
	// BinaryKeys allows keys of any bytes, up to 186 with the prefix: those that servers do not take as they are go as
	// base64. Meta only.
	BinaryKeys bool
	// VerifyReplies puts a number into each request that its reply has to repeat. Meta only.
	VerifyReplies bool
	// Dial opens connections.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS, if set, is spoken on them; ServerName is the address's host if it is empty.
	TLS *tls.Config
	// Auth, if set, gives the user and the password that each connection begins with, as memcached's text protocol has it.
	Auth func(ctx context.Context, server Server) (user, password string, err error)
	// Discover changes the list of servers; Servers is what it begins with, and may be empty.
	Discover Discovery
	// Observer is told of every call and connection.
	Observer Observer
}

const lanesMax = 8

// checked is the configuration with its defaults.
func (c Config) checked() (Config, error) {
	or := func(to *time.Duration, otherwise time.Duration) {
		if *to == 0 {
			*to = otherwise
		}
	}
	number := func(to *int, otherwise int) {
		if *to == 0 {
			*to = otherwise
		}
	}
	or(&c.Timeout, 500*time.Millisecond)
	or(&c.DialTimeout, time.Second)
	or(&c.StallTimeout, 2*time.Second)
	number(&c.Lanes, 1)
	number(&c.LargeBytes, 64<<10)
	number(&c.InFlight, 4096)
	if c.Shard == "" {
		c.Shard = shard.Ketama
	}
	switch {
	case len(c.Servers) == 0 && c.Discover == nil:
		return c, errNoServers
	case c.Timeout < 0 || c.DialTimeout < 0 || c.StallTimeout < 0:
		return c, fmt.Errorf("larder: a timeout is not negative")
	case c.Lanes < 1 || c.Lanes > lanesMax:
		return c, fmt.Errorf("larder: %d lanes, not 1 to %d", c.Lanes, lanesMax)
	case c.InFlight < 1 || c.LargeBytes < 1:
		return c, fmt.Errorf("larder: InFlight and LargeBytes are positive")
	case c.KeyPrefix != "" && !c.BinaryKeys && !validPrefix(c.KeyPrefix):
		return c, ErrBadKey
	}
	var err error
	if c.Servers, err = named(c.Servers); err != nil {
		return c, err
	}
	switch f := c.Failure.(type) {
	case FailFast:
		c.Failure = nil
	case Gutter:
		if len(f.Servers) == 0 {
			return c, fmt.Errorf("larder: a gutter has servers")
		}
	}
	return c, nil
}
