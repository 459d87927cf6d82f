package larder

import (
	"context"
	"io"

	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

// GetTo writes the value to w as it arrives, on a connection that no other call uses meanwhile. Config.Timeout limits the time to
// get that connection. From then on the context limits the call, and Config.StallTimeout the silence of the server.
//
// # Errors
//
// The error of w, after which the connection is closed. What was written before an error is a part of the value.
func (c *Client) GetTo(ctx context.Context, key string, w io.Writer, o GetOptions) (Meta, error) {
	r, err := o.request(key)
	if err != nil {
		return Meta{}, err
	}
	var m Meta
	err = c.alone(ctx, &r, func(conn *fleet.Conn, server string) (bool, error) {
		if _, err := conn.Write(conn.Protocol.Write(nil, &r)); err != nil {
			return false, lost(server, err)
		}
		var head wire.Head
		if whole, err := readHead(conn, &r, server, &head); !whole || err != nil {
			return whole, err
		}
		m = meta(&head)
		into := &onlyWriter{w: w}
		n, err := io.CopyN(into, conn.In, int64(head.Bytes))
		switch {
		case into.err != nil:
			return false, into.err
		case err != nil || n != int64(head.Bytes):
			return false, lost(server, err)
		}
		trailer := make([]byte, len(head.Trailer))
		if _, err := io.ReadFull(conn.In, trailer); err != nil {
			return false, lost(server, err)
		}
		if string(trailer) != string(head.Trailer) {
			return false, &Error{Err: ErrProtocol, Outcome: Unknown, Server: server, Detail: "a value without its end"}
		}
		return true, nil
	})
	return m, err
}

// SetFrom stores size bytes of r, on a connection that no other call uses meanwhile. Its time is limited as GetTo's.
//
// # Errors
//
// The error of r, or io.ErrUnexpectedEOF if r ends early: nothing is stored then, and the connection is closed.
func (c *Client) SetFrom(ctx context.Context, key string, r io.Reader, size int64, o StoreOptions) (Meta, error) {
	request, err := o.request(key)
	if err != nil {
		return Meta{}, err
	}
	if size < 0 || size > wire.ValueBytesMax {
		return Meta{}, ErrTooLarge
	}
	request.Apart, request.Size = true, size
	var m Meta
	err = c.alone(ctx, &request, func(conn *fleet.Conn, server string) (bool, error) {
		if _, err := conn.Write(conn.Protocol.Write(nil, &request)); err != nil {
			return false, lost(server, err)
		}
		from := &onlyReader{r: io.LimitReader(r, size)}
		n, err := io.Copy(&onlyWriter{w: conn}, from)
		switch {
		case from.err != nil:
			return false, &Error{Err: from.err, Outcome: NotSent, Server: server}
		case err == nil && n != size:
			return false, &Error{Err: io.ErrUnexpectedEOF, Outcome: NotSent, Server: server}
		case err != nil:
			return false, lost(server, err)
		}
		if _, err := conn.Write([]byte("\r\n")); err != nil {
			return false, lost(server, err)
		}
		var head wire.Head
		whole, err := readHead(conn, &request, server, &head)
		m = Meta{CAS: head.CAS}
		// After a refusal it is not known whether the server read what follows as a value or as requests.
		return whole && head.Status < wire.ClientError, err
	})
	return m, err
}

// alone makes a request on the connection for one caller.
func (c *Client) alone(ctx context.Context, r *wire.Request, f func(conn *fleet.Conn, server string) (bool, error)) error {
	if err := c.keyed(r); err != nil {
		return err
	}
	server, limit, err := c.target(r.Key)
	if err != nil {
		return err
	}
	limited(r, limit)
	began := lane.Now()
	err = server.Alone(ctx, c.deadline(ctx), func(conn *fleet.Conn) (bool, error) {
		if !conn.Protocol.Can(r) {
			return true, needsMeta(server.Name())
		}
		return f(conn, server.Name())
	})
	c.noted(ctx, r.Verb.String(), server.Name(), 1, began, err)
	return err
}

// readHead reads a reply's line; false if the connection cannot be used again.
func readHead(conn *fleet.Conn, r *wire.Request, server string, head *wire.Head) (bool, error) {
	line, err := conn.Line()
	if err != nil {
		return false, lost(server, err)
	}
	if err := conn.Protocol.Read(r.Verb, line, head); err != nil {
		return false, &Error{Err: ErrProtocol, Outcome: Unknown, Server: server, Detail: string(line)}
	}
	if head.Status == wire.Value && head.Key != nil && string(head.Key) != r.Key {
		return false, &Error{Err: ErrProtocol, Outcome: Unknown, Server: server, Detail: "another key's value"}
	}
	return true, answer(r.Verb, head.Status, string(head.Text), server)
}

// onlyWriter hides all other methods of a writer, and keeps its error apart from the reader's.
type onlyWriter struct {
	w   io.Writer
	err error
}

func (w *onlyWriter) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	if err != nil {
		w.err = err
	}
	return n, err
}

// onlyReader hides all other methods of a reader, and keeps its error apart from the writer's.
type onlyReader struct {
	r   io.Reader
	err error
}

func (r *onlyReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}
