package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestRequestsAreTheseBytes(t *testing.T) {
	for _, c := range []struct {
		request       Request
		meta, classic string
	}{
		{Request{Verb: Get, Key: "k"}, "mg k v\r\n", "gets k\r\n"},
		{Request{Verb: Get, Key: "k", Want: WantFlags | WantCAS | WantTTL, Opaque: 35, HasOpaque: true}, "mg k v f c t Oz\r\n", "gets k\r\n"},
		{Request{Verb: Get, Key: "k", Exptime: 0, Retime: true}, "mg k v T0\r\n", "gats 0 k\r\n"},
		{Request{Verb: Touch, Key: "k", Exptime: 30}, "mg k T30\r\n", "touch k 30\r\n"},
		{Request{Verb: Set, Key: "k", Value: []byte("v")}, "ms k 1\r\nv\r\n", "set k 0 0 1\r\nv\r\n"},
		{Request{Verb: Set, Key: "k", Flags: 1<<32 - 1, Exptime: 60, CAS: 7}, "ms k 0 F4294967295 T60 C7\r\n\r\n", "cas k 4294967295 60 0 7\r\n\r\n"},
		{Request{Verb: Set, Key: "k", Compare: true}, "ms k 0 C0\r\n\r\n", "cas k 0 0 0 0\r\n\r\n"},
		{Request{Verb: Add, Key: "k", Value: []byte("\r\n")}, "ms k 2 ME\r\n\r\n\r\n", "add k 0 0 2\r\n\r\n\r\n"},
		{Request{Verb: Replace, Key: "k"}, "ms k 0 MR\r\n\r\n", "replace k 0 0 0\r\n\r\n"},
		{Request{Verb: Append, Key: "k"}, "ms k 0 MA\r\n\r\n", "append k 0 0 0\r\n\r\n"},
		{Request{Verb: Prepend, Key: "k", Quiet: true}, "ms k 0 MP q\r\n\r\n", "prepend k 0 0 0\r\n\r\n"},
		{Request{Verb: Delete, Key: "k", CAS: 1}, "md k C1\r\n", "delete k\r\n"},
		{Request{Verb: Incr, Key: "k", Delta: 1<<64 - 1}, "ma k v D18446744073709551615\r\n", "incr k 18446744073709551615\r\n"},
		{Request{Verb: Decr, Key: "k", Delta: 2, Create: true, Initial: 5, Exptime: 9}, "ma k v MD D2 N9 J5\r\n", "decr k 2\r\n"},
		{Request{Verb: Noop}, "mn\r\n", "version\r\n"},
		{Request{Verb: Version}, "version\r\n", "version\r\n"},
		{Request{Verb: FlushAll}, "flush_all\r\n", "flush_all\r\n"},
	} {
		if got := Meta.Write(nil, &c.request); string(got) != c.meta {
			t.Errorf("meta: %q, not %q", got, c.meta)
		}
		if got := Classic.Write(nil, &c.request); string(got) != c.classic {
			t.Errorf("classic: %q, not %q", got, c.classic)
		}
	}
}

func TestRepliesAreRead(t *testing.T) {
	for _, c := range []struct {
		protocol Protocol
		verb     Verb
		line     string
		head     Head
	}{
		{Meta, Get, "EN", Head{Status: Absent}},
		{Meta, Get, "EN O1", Head{Status: Absent, Opaque: 1, HasOpaque: true}},
		{Meta, Get, "VA 5 f7 c9 t-1 s5 l3 h1 Oz W X Z", Head{Status: Value, Bytes: 5, Trailer: crlf, Flags: 7, CAS: 9, TTL: -1, Size: 5, LastAccess: 3, HitBefore: true, Opaque: 35, HasOpaque: true, Won: true, Stale: true, Pending: true}},
		{Meta, Get, "VA 0 t1", Head{Status: Value, Trailer: crlf, TTL: 1}},
		{Meta, Get, "VA 0 t0", Head{Status: Value, Trailer: crlf, TTL: 1}},
		{Meta, Get, "VA 0", Head{Status: Value, Trailer: crlf}},
		{Meta, Set, "HD c18446744073709551615", Head{Status: Done, CAS: 1<<64 - 1}},
		{Meta, Set, "NS ", Head{Status: NotStored}},
		{Meta, Delete, "NF", Head{Status: Absent}},
		{Meta, Delete, "EX", Head{Status: Exists}},
		{Meta, Noop, "MN", Head{Status: Barrier}},
		{Meta, Incr, "VA 2", Head{Status: Value, Bytes: 2, Trailer: crlf}},
		{Meta, Set, "SERVER_ERROR out of memory", Head{Status: ServerError, Text: []byte("out of memory")}},
		{Meta, Get, "ERROR", Head{Status: Unknown, Text: []byte{}}},
		{Meta, Get, "CLIENT_ERROR no", Head{Status: ClientError, Text: []byte("no")}},
		{Classic, Get, "END", Head{Status: Absent}},
		{Classic, Get, "VALUE key 1 2 3", Head{Status: Value, Bytes: 2, Trailer: crlfEnd, Flags: 1, CAS: 3, Key: []byte("key")}},
		{Classic, Get, "VALUE key 1 2", Head{Status: Value, Bytes: 2, Trailer: crlfEnd, Flags: 1, Key: []byte("key")}},
		{Classic, Set, "STORED", Head{Status: Done}},
		{Classic, Set, "EXISTS", Head{Status: Exists}},
		{Classic, Delete, "DELETED", Head{Status: Done}},
		{Classic, Touch, "TOUCHED", Head{Status: Done}},
		{Classic, Touch, "NOT_FOUND", Head{Status: Absent}},
		{Classic, Incr, "12  ", Head{Status: Number, Number: 12}},
		{Classic, Noop, "VERSION x", Head{Status: VersionLine, Text: []byte("x")}},
		{Meta, FlushAll, "OK", Head{Status: Done}},
	} {
		var head Head
		if err := c.protocol.Read(c.verb, []byte(c.line), &head); err != nil {
			t.Errorf("%q: %v", c.line, err)
		}
		if !same(&head, &c.head) {
			t.Errorf("%q: %+v, not %+v", c.line, head, c.head)
		}
	}
}

func same(a, b *Head) bool {
	plain := func(h Head) Head { h.Text, h.Key, h.Trailer = nil, nil, nil; return h }
	x, y := plain(*a), plain(*b)
	return x.Status == y.Status && x.Bytes == y.Bytes && x.Flags == y.Flags && x.CAS == y.CAS && x.TTL == y.TTL &&
		x.LastAccess == y.LastAccess && x.Size == y.Size && x.Number == y.Number && x.Opaque == y.Opaque &&
		x.HasOpaque == y.HasOpaque && x.HitBefore == y.HitBefore && x.Stale == y.Stale && x.Won == y.Won &&
		x.Pending == y.Pending && bytes.Equal(a.Text, b.Text) && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Trailer, b.Trailer)
}

func TestWhatIsNoReplyIsRefused(t *testing.T) {
	for _, c := range []struct {
		protocol Protocol
		verb     Verb
		lines    []string
	}{
		{Meta, Get, []string{"", "V", "HELLO", "VA", "VA ", "VA x", "VA -1", "VA 1x", "VA 2147483648", "VA 99999999999999999999", "HD", "NS", "EX", "MN", "END", "VA 1 f4294967296", "VA 1 f", "VA 1 cx", "VA 1 ?", "VA 1 O", "VA 1 OA", "VA 0  ", "EN  O1", "VA 1 Ozzzzzzz", "VA 1 Ozzzzzzzz", "ENX", "STORED"}},
		{Meta, Set, []string{"VA 1", "EN1", "MN", "STORED", "12"}},
		{Meta, Noop, []string{"MN x", "HD", "EN"}},
		{Meta, Delete, []string{"VA 1", "NS", "DELETED"}},
		{Classic, Get, []string{"VALUE", "VALUE ", "VALUE k", "VALUE k 1", "VALUE k 1 x", "VALUE  1 1", "VALUE k 4294967296 1", "VALUE k 1 1 ", "VALUE k 1 1 x", "VALUE k 1 1 2 3", "VALUE k 1 1 18446744073709551616", "STORED", "NOT_FOUND", "VALUE " + strings.Repeat("k", 251) + " 1 1"}},
		{Classic, Incr, []string{"", " ", "x", "1x", "-1", "18446744073709551616", "STORED"}},
		{Classic, Set, []string{"HD", "DELETED", "OK", "END"}},
	} {
		for _, line := range c.lines {
			var head Head
			if err := c.protocol.Read(c.verb, []byte(line), &head); !errors.Is(err, ErrGrammar) {
				t.Errorf("%d: %q is read as %+v", c.verb, line, head)
			}
		}
	}
}

func TestLineHasALimit(t *testing.T) {
	for _, c := range []struct {
		bytes int
		err   error
	}{{LineBytesMax - 1, nil}, {LineBytesMax, nil}, {LineBytesMax + 1, ErrGrammar}} {
		whole := append(bytes.Repeat([]byte("x"), c.bytes-1), "\r\n"...)
		if _, _, err := Line(whole); err != c.err {
			t.Errorf("%d: %v", c.bytes, err)
		}
		if _, _, err := Line(whole[:len(whole)-1]); err != nil && c.err == nil {
			t.Errorf("%d, not whole: %v", c.bytes, err)
		}
	}
	for _, wrong := range []string{"\n", "HD\n", "\n\r\n"} {
		if _, _, err := Line([]byte(wrong)); err == nil {
			t.Errorf("%q is a line", wrong)
		}
	}
}

func TestKeysHaveLimits(t *testing.T) {
	for key, valid := range map[string]bool{
		"": false, "k": true, strings.Repeat("k", 249): true, strings.Repeat("k", 250): true, strings.Repeat("k", 251): false,
		"a b": false, "a\n": false, "a\x7f": false, "\x00": false, "日本": true,
	} {
		if ValidKey(key) != valid {
			t.Errorf("%q: %v", key, !valid)
		}
	}
}

// FuzzReply: no bytes make a reader panic or return a result that no reply has, and an incomplete reply is waited for.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		"HD\r\n", "VA 5 f1 c2 t-1 Oz\r\nhello\r\n", "EN O1\r\n", "VALUE k 1 2 3\r\nhi\r\nEND\r\n", "END\r\n", "STORED\r\n", "12 \r\n",
		"SERVER_ERROR x\r\n", "CLIENT_ERROR\r\n", "ERROR\r\n", "MN\r\n", "VERSION 1\r\n", "\r\n", "VA 18446744073709551616\r\n",
	} {
		for verb := Get; verb <= FlushAll; verb++ {
			f.Add([]byte(seed), byte(verb), verb%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, input []byte, verb byte, classic bool) {
		protocol := Meta
		if classic {
			protocol = Classic
		}
		asked := Verb(verb % byte(FlushAll+1))
		line, taken, err := Line(input)
		if err != nil || taken == 0 {
			return
		}
		if taken > len(input) || len(line) != taken-2 || !bytes.Equal(input[taken-2:taken], crlf) {
			t.Fatalf("%q of %q", line, input)
		}
		for cut := range taken {
			if _, n, err := Line(input[:cut]); n != 0 || err != nil {
				t.Fatalf("%q is whole or wrong: %v", input[:cut], err)
			}
		}
		before := string(line)
		var head Head
		err = protocol.Read(asked, line, &head)
		if string(line) != before {
			t.Fatal("the line was changed")
		}
		if err == nil && (head.Bytes < 0 || head.Bytes > ValueBytesMax || (head.Status == Value) != (head.Trailer != nil)) {
			t.Fatalf("%q: %+v", line, head)
		}
	})
}
