package larder

import (
	"context"
	"errors"
	"time"

	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

// Observer is called after each event, outside of all locks, on the goroutine of the event: the time it takes is callers' time.
// Many goroutines use it at once.
type Observer interface {
	Op(OpEvent)
	Conn(ConnEvent)
}

// OpEvent is one call that asked servers.
type OpEvent struct {
	// Context is the call's.
	Context context.Context
	// Verb is the kind of the request: "get", "set", …; "batch" for a batch.
	Verb string
	// Server is the name of the server that was asked; empty for several.
	Server string
	// Keys is the number of keys.
	Keys int
	// Began and Took are when the call began, and how long the caller waited.
	Began time.Time
	Took  time.Duration
	// Err is the error that the caller gets.
	Err error
}

// ConnKind is the kind of an event of connections.
type ConnKind uint8

const (
	// Connected: a connection was dialed and greeted in the time Took.
	Connected ConnKind = iota
	// ConnectFailed: no connection was made; Err says why.
	ConnectFailed
	// ServerDown: calls fail at once, and one goroutine dials.
	ServerDown
	// ServerBack: it answers again.
	ServerBack
	// DiscoveryFailed: the list of servers stays as it is; Err says why.
	DiscoveryFailed
)

// String is the kind in words.
func (k ConnKind) String() string {
	return [...]string{"connected", "connect failed", "server down", "server back", "discovery failed"}[k]
}

// ConnEvent is something that happened to a server's connections.
type ConnEvent struct {
	Kind   ConnKind
	Server string
	Took   time.Duration
	Err    error
}

// observed is do, with a call of the observer.
func (c *Client) observed(ctx context.Context, op *lane.Op, r *wire.Request, large bool) error {
	began := time.Now()
	server, err := c.ask(ctx, op, r, large)
	c.c.Observer.Op(OpEvent{Context: ctx, Verb: r.Verb.String(), Server: nameOf(server), Keys: 1, Began: began, Took: time.Since(began), Err: err})
	return err
}

// noted calls the observer for a call that did not go through do.
func (c *Client) noted(ctx context.Context, verb string, server string, keys int, began time.Duration, err error) {
	if o := c.c.Observer; o != nil {
		took := lane.Now() - began
		o.Op(OpEvent{Context: ctx, Verb: verb, Server: server, Keys: keys, Began: time.Now().Add(-took), Took: took, Err: err})
	}
}

func nameOf(server *fleet.Server) string {
	if server == nil {
		return ""
	}
	return server.Name()
}

// tell is the observer for events of connections.
func tell(o Observer) func(string, fleet.Event, time.Duration, error) {
	if o == nil {
		return nil
	}
	return func(server string, event fleet.Event, took time.Duration, err error) {
		kind := [...]ConnKind{fleet.Dialed: Connected, fleet.DialFailed: ConnectFailed, fleet.WentDown: ServerDown, fleet.CameBack: ServerBack}[event]
		o.Conn(ConnEvent{Kind: kind, Server: server, Took: took, Err: err})
	}
}

// Counters are what the client has done.
type Counters = fleet.Counters

// Counters returns those of each server, by its name.
func (c *Client) Counters() map[string]Counters {
	all := map[string]Counters{}
	for _, server := range c.everyone() {
		all[server.Name()] = server.Counters()
	}
	return all
}

// ServerVersion is the version of one server.
type ServerVersion struct {
	Server, Version string
	Err             error
}

// Version asks each server for its version. The error is that of the first server that has not answered.
func (c *Client) Version(ctx context.Context) ([]ServerVersion, error) {
	var all []ServerVersion
	var first error
	for _, server := range c.all() {
		op := lane.NewOp()
		err := server.Do(ctx, 0, op, &wire.Request{Verb: wire.Version}, c.deadline(ctx))
		if err == nil {
			err = answer(wire.Version, op.Head.Status, op.Text, server.Name())
		}
		told := ServerVersion{Server: server.Name(), Err: err}
		if err == nil {
			told.Version = op.Text
		} else if first == nil {
			first = err
		}
		op.Free()
		all = append(all, told)
	}
	return all, first
}

// ServerStats is the figures of one server.
type ServerStats struct {
	Server string
	Stats  map[string]string
	Err    error
}

// Stats asks each server for its figures: the general ones, or those that args name ("items", "slabs", "settings"). The error is
// that of the first server that has not answered.
func (c *Client) Stats(ctx context.Context, args ...string) ([]ServerStats, error) {
	line := "stats"
	for _, arg := range args {
		if !wire.ValidKey(arg) {
			return nil, ErrBadKey
		}
		line += " " + arg
	}
	var all []ServerStats
	var first error
	for _, server := range c.all() {
		told := ServerStats{Server: server.Name(), Stats: map[string]string{}}
		told.Err = server.Alone(ctx, c.deadline(ctx), func(conn *fleet.Conn) (bool, error) {
			return readStats(conn, line+"\r\n", server.Name(), told.Stats)
		})
		if told.Err != nil && first == nil {
			first = told.Err
		}
		all = append(all, told)
	}
	return all, first
}

func readStats(conn *fleet.Conn, line, server string, to map[string]string) (bool, error) {
	if _, err := conn.Write([]byte(line)); err != nil {
		return false, lost(server, err)
	}
	for {
		reply, err := conn.Line()
		if err != nil {
			return false, lost(server, err)
		}
		name, value, is, err := wire.Stat(reply)
		switch {
		case err != nil:
			return false, &Error{Err: ErrProtocol, Outcome: Unknown, Server: server, Detail: string(reply)}
		case is:
			to[name] = value
		case value != "":
			return true, &Error{Err: ErrServer, Server: server, Detail: value}
		default:
			return true, nil
		}
	}
}

// lost is the error when a connection for one caller fails after something was sent.
func lost(server string, err error) error {
	if errors.Is(err, wire.ErrGrammar) {
		return &Error{Err: ErrProtocol, Outcome: Unknown, Server: server, Cause: err}
	}
	return &Error{Err: ErrLost, Outcome: Unknown, Server: server, Detail: err.Error(), Cause: err}
}
