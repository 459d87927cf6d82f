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

// Server is a server's address, name and weight.
type Server struct {
	// Address is host:port, or the path of a Unix socket.
	Address string
	// Name is what placement hashes. Default: the address as written.
	Name string
	// Weight is its share of the keys. Default: 1.
	Weight int
}

// Protocol is the protocol to speak.
type Protocol = fleet.Protocol

const (
	// Auto asks each server for its version: meta text from memcached 1.6.10 on, else classic.
	Auto = fleet.Auto
	// MetaText is memcached's meta protocol.
	MetaText = fleet.Meta
	// ClassicText is memcached's first protocol. Requests that it cannot express fail with ErrServer, and nothing is sent.
	ClassicText = fleet.Classic
)

// Config configures a client. A field with its zero value has the default that its comment gives.
type Config struct {
	Servers []Server
	// Shard is the rule of placement. Default: [shard.Ketama].
	Shard shard.Preset
	// Protocol is the protocol to speak. Default: Auto.
	Protocol Protocol
	// Timeout limits a whole operation, waiting and dialing included. Default: 500 ms.
	Timeout time.Duration
	// DialTimeout limits dialing and greeting. Default: 1 s.
	DialTimeout time.Duration
	// StallTimeout: the connection to a server that owes replies and sends nothing for this long is given up. Default: 2 s.
	StallTimeout time.Duration
	// Lanes is the number of connections to a server for values that are not large, at most 8. A key always uses the same one.
	// Default: 1.
	Lanes int
	// LargeBytes: larger values are set on a connection of their own. Default: 65,536.
	LargeBytes int
	// InFlight is how many replies a lane may be owed. Further callers wait, within Timeout. Default: 4,096.
	InFlight int
	// NoRetryReads: if a connection is lost before Get or GetItem is answered, they return [ErrLost] at once. By default they are
	// asked once more, within Timeout, since reads change nothing.
	NoRetryReads bool
	// Failure is what happens to the keys of a server that is down. Default: [FailFast].
	Failure Failure
	// KeyPrefix is put before each key.
	KeyPrefix string
	// BinaryKeys allows keys of any bytes, up to 186 with the prefix: keys that servers would refuse are sent as base64. Meta only.
	BinaryKeys bool
	// VerifyReplies puts a number into each request, which its reply has to repeat. Meta only.
	VerifyReplies bool
	// Dial opens connections.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS, if set, is used on all connections. If ServerName is empty, it is the address's host.
	TLS *tls.Config
	// Auth, if set, returns the user and the password that each connection sends first, as in memcached's text protocol.
	Auth func(ctx context.Context, server Server) (user, password string, err error)
	// Discover changes the list of servers. Servers is then the first list, and may be empty.
	Discover Discovery
	// Observer is called for every call and connection.
	Observer Observer
}

const lanesMax = 8

// checked returns the configuration with its defaults.
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
