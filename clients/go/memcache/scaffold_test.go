package memcache

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"

	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

// Names that gomemcache's own tests use and no other code can: cargo xtask conformance gomemcache-facade puts these tests into
// this package.

var crlf = []byte("\r\n")

// getConn makes sure that there is a connection.
func (c *Client) getConn(addr net.Addr) (*lane.Lane, error) {
	return c.server(addr).Lane(context.Background(), 0, lane.Now()+c.timeout())
}

// onItem picks a server and calls f.
func (c *Client) onItem(item *Item, f func(*Client, *bufio.ReadWriter, *Item) error) error {
	if _, err := c.selector.PickServer(item.Key); err != nil {
		return err
	}
	return f(c, nil, item)
}

// scanGetResponseLine reads a line of a reply as this package does.
func scanGetResponseLine(line []byte, it *Item) (int, error) {
	if !bytes.HasSuffix(line, crlf) {
		return -1, errors.New("not a line")
	}
	var head wire.Head
	if err := wire.Classic.Read(wire.Get, line[:len(line)-2], &head); err != nil || head.Status != wire.Value {
		return -1, errors.New("not a hit")
	}
	it.Key, it.Flags, it.CasID = string(head.Key), head.Flags, head.CAS
	return head.Bytes, nil
}

var _, _, _ = (*Client).getConn, (*Client).onItem, scanGetResponseLine
