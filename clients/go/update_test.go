package larder

import (
	"io"
	"net"
	"testing"
	"time"

	servers "larder.example/clients/go/internal/live"
)

// Each update stores the time that its read returned. How far that moves the item's end depends on the server:
// crates/commands/tests/session/meta.rs has Larder's.
func TestUpdatesStoreTheTimeThatTheirReadTold(t *testing.T) {
	servers.Leaks(t)
	server := &specServer{room: 1 << 16, conns: make(chan net.Conn, 16)}
	c, err := newClient(Config{
		Servers: []Server{{Address: "server"}}, Timeout: patience, DialTimeout: patience, StallTimeout: patience, Dial: server.dial,
		Protocol: MetaText,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	type exchange struct{ asked, reply string }
	read := func(told string) exchange { return exchange{"mg k v f c t\r\n", "VA 1 f7 c9 " + told + "\r\nx\r\n"} }
	store := func(exptime, reply string) exchange { return exchange{"ms k 2 F7" + exptime + " C9\r\nxy\r\n", reply} }
	of := &specCase{file: "update_test.go", name: "times"}
	var conn net.Conn
	for _, update := range [][]exchange{
		{read("t60"), store(" T60", "HD\r\n")},
		{read("t60"), store(" T60", "HD\r\n")},
		{read("t59"), store(" T59", "HD\r\n")},
		// Another writer was faster: the time is that of the second read.
		{read("t59"), store(" T59", "EX\r\n"), read("t57"), store(" T57", "HD\r\n")},
		// 30 days are the longest time that is sent as a number of seconds.
		{read("t2592000"), store(" T2592000", "HD\r\n")},
		// Less than half a second is left: the item exists.
		{read("t0"), store(" T1", "HD\r\n")},
		{read("t-1"), store("", "HD\r\n")},
		{{"mg k v f c t\r\n", "EN\r\n"}, {"ms k 1 T600 ME\r\ny\r\n", "HD\r\n"}},
	} {
		done := make(chan error, 1)
		go func() {
			options := UpdateOptions{TTL: 10 * time.Minute, KeepTTL: true}
			done <- c.Update(background, "k", options, func(old []byte, _ Meta) ([]byte, error) { return append(old, 'y'), nil })
		}()
		if conn == nil {
			conn = <-server.conns
			expect(t, of, conn, "mn\r\n", nil)
			_, _ = io.WriteString(conn, "MN\r\n")
		}
		for _, one := range update {
			expect(t, of, conn, one.asked, nil)
			_, _ = io.WriteString(conn, one.reply)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}
