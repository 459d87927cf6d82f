package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"time"
)

// handClient is the least that a program can do: a connection for each caller, no deadline where none is asked for, no
// counters; the text protocol. It comes back from nothing but a lost connection.
type handClient struct {
	uncounted
	j    *job
	dial dialer
}

func openHand(j *job) (client, error) {
	dialer, err := j.dialer()
	return handClient{j: j, dial: dialer}, err
}

func (h handClient) session() session { return &hand{j: h.j, dial: h.dial} }
func (h handClient) close()           {}

type hand struct {
	j    *job
	dial dialer
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	dst  []byte
}

var (
	errHandMiss = errors.New("miss")
	errHandOdd  = errors.New("a reply that was not expected")
)

// begin connects if need be.
func (h *hand) begin() error {
	if h.conn == nil {
		conn, err := h.dial(background, h.j.network(), h.j.address())
		if err != nil {
			return err
		}
		h.conn, h.in, h.dst = conn, bufio.NewReaderSize(conn, 64<<10), make([]byte, 0, h.j.ValueBytes+2)
	}
	if h.j.TimeoutMS < 1000 {
		return h.conn.SetDeadline(time.Now().Add(h.j.timeout()))
	}
	return nil
}

// lost gives the connection up after an error of it: bytes that it may still bring are dropped.
func (h *hand) lost(err error) error {
	if err != nil && err != errHandMiss && h.conn != nil {
		_ = h.conn.Close()
		h.conn = nil
	}
	return err
}

func (h *hand) line() ([]byte, error) {
	text, err := h.in.ReadSlice('\n')
	return bytes.TrimSuffix(text, []byte("\r\n")), err
}

// value reads one of the key, or END.
func (h *hand) value(key string) ([]byte, error) {
	head, err := h.line()
	if err != nil {
		return nil, err
	}
	if string(head) == "END" {
		return nil, errHandMiss
	}
	if !bytes.HasPrefix(head, []byte("VALUE ")) {
		return nil, errHandOdd
	}
	name, rest, _ := bytes.Cut(head[len("VALUE "):], []byte(" "))
	_, size, _ := bytes.Cut(rest, []byte(" "))
	n, err := strconv.Atoi(string(size))
	if err != nil || n < 0 || n > 1<<20 || key != string(name) {
		return nil, errHandOdd
	}
	if cap(h.dst) < n+2 {
		h.dst = make([]byte, 0, n+2)
	}
	h.dst = h.dst[:n+2]
	if _, err := io.ReadFull(h.in, h.dst); err != nil {
		return nil, err
	}
	return h.dst[:n], nil
}

func (h *hand) end() error {
	text, err := h.line()
	if err == nil && string(text) != "END" {
		err = errHandOdd
	}
	return err
}

func (h *hand) get(key string) ([]byte, error) {
	if err := h.begin(); err != nil {
		return nil, h.lost(err)
	}
	h.out = append(append(append(h.out[:0], "get "...), key...), "\r\n"...)
	if _, err := h.conn.Write(h.out); err != nil {
		return nil, h.lost(err)
	}
	got, err := h.value(key)
	if err == nil {
		err = h.end()
	}
	return got, h.lost(err)
}

func (h *hand) set(key string, value []byte) error {
	if err := h.begin(); err != nil {
		return h.lost(err)
	}
	h.out = h.out[:0]
	h.store(key, value)
	if _, err := h.conn.Write(h.out); err != nil {
		return h.lost(err)
	}
	return h.lost(h.stored())
}

// store appends a set to the bytes to send.
func (h *hand) store(key string, value []byte) {
	h.out = append(append(append(h.out, "set "...), key...), " 0 0 "...)
	h.out = append(strconv.AppendInt(h.out, int64(len(value)), 10), "\r\n"...)
	h.out = append(append(h.out, value...), "\r\n"...)
}

// stored reads the reply to a set.
func (h *hand) stored() error {
	text, err := h.line()
	if err == nil && string(text) != "STORED" {
		err = errHandOdd
	}
	return err
}

// sets sends all sets with one write.
func (h *hand) sets(at int, k *keyspace) error {
	if err := h.begin(); err != nil {
		return h.lost(err)
	}
	h.out = h.out[:0]
	for i := at; i < at+setsKeys; i++ {
		h.store(k.names[i], k.values[i%len(k.values)])
	}
	if _, err := h.conn.Write(h.out); err != nil {
		return h.lost(err)
	}
	for range setsKeys {
		if err := h.stored(); err != nil {
			return h.lost(err)
		}
	}
	return nil
}

func (h *hand) many(keys []string, k *keyspace) (found, wrong int, err error) {
	if err := h.begin(); err != nil {
		return 0, 0, h.lost(err)
	}
	h.out = append(h.out[:0], "get"...)
	for _, key := range keys {
		h.out = append(append(h.out, ' '), key...)
	}
	h.out = append(h.out, "\r\n"...)
	if _, err := h.conn.Write(h.out); err != nil {
		return 0, 0, h.lost(err)
	}
	for _, key := range keys {
		got, err := h.value(key)
		if err == errHandMiss {
			return found, wrong, nil
		}
		if err != nil {
			return found, wrong, h.lost(err)
		}
		found++
		if !k.right(key, got) {
			wrong++
		}
	}
	return found, wrong, h.lost(h.end())
}

func (h *hand) close() {
	if h.conn != nil {
		_ = h.conn.Close()
	}
}
