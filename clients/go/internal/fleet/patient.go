package fleet

import (
	"net"
	"os"
	"sync"
	"time"
)

// patient is a connection whose writes may time out while their bytes are still on their way: a TLS connection that has missed
// one write deadline takes no more. A goroutine writes. A write that times out has still handed over its bytes, and the next one
// waits for it.
type patient struct {
	net.Conn
	work chan []byte
	// free has a token while nothing is being written.
	free chan struct{}
	stop chan struct{}
	once sync.Once
	done sync.WaitGroup
	// bytes and err belong to the holder of the token.
	bytes []byte
	err   error
	timer *time.Timer

	mu    sync.Mutex
	until time.Time
}

func newPatient(conn net.Conn) *patient {
	p := &patient{Conn: conn, work: make(chan []byte), free: make(chan struct{}, 1), stop: make(chan struct{}), timer: time.NewTimer(time.Hour)}
	p.free <- struct{}{}
	p.done.Add(1)
	go func() {
		defer p.done.Done()
		for {
			select {
			case bytes := <-p.work:
				_, p.err = p.Conn.Write(bytes)
				p.free <- struct{}{}
			case <-p.stop:
				return
			}
		}
	}()
	return p
}

// take waits for the token.
func (p *patient) take() bool {
	select {
	case <-p.free:
		return true
	default:
	}
	p.mu.Lock()
	until := p.until
	p.mu.Unlock()
	if until.IsZero() {
		select {
		case <-p.free:
			return true
		case <-p.stop:
			return false
		}
	}
	p.timer.Reset(time.Until(until))
	defer p.timer.Stop()
	select {
	case <-p.free:
		return true
	case <-p.timer.C:
	case <-p.stop:
	}
	return false
}

// Write may be called by one goroutine at a time.
func (p *patient) Write(b []byte) (int, error) {
	if !p.take() {
		return 0, os.ErrDeadlineExceeded
	}
	if p.err != nil {
		p.free <- struct{}{}
		return 0, p.err
	}
	p.bytes = append(p.bytes[:0], b...)
	select {
	case p.work <- p.bytes:
	case <-p.stop:
		p.free <- struct{}{}
		return 0, net.ErrClosed
	}
	if !p.take() {
		return len(b), nil
	}
	err := p.err
	p.free <- struct{}{}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// SetWriteDeadline applies to writes that begin later.
func (p *patient) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = t
	return nil
}

// SetDeadline sets both.
func (p *patient) SetDeadline(t time.Time) error {
	_ = p.SetWriteDeadline(t)
	return p.SetReadDeadline(t)
}

// Close ends the goroutine as well.
func (p *patient) Close() error {
	p.once.Do(func() { close(p.stop) })
	// Closes below TLS, which would first send close_notify behind what is being written.
	err := p.Conn.(interface{ NetConn() net.Conn }).NetConn().Close()
	p.done.Wait()
	return err
}
