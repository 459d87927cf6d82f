package fleet

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"larder.example/clients/go/internal/wire"
)

// greet finds out what the server speaks, and that it answers. It asks one question after the other, since a server that does not
// know mn may close the connection.
func greet(conn net.Conn, protocol Protocol) (wire.Protocol, error) {
	if protocol != Meta {
		head, err := ask(conn, wire.Version)
		if err != nil {
			return 0, err
		}
		if protocol == Classic || !knowsMeta(string(head.Text)) {
			return wire.Classic, nil
		}
	}
	if _, err := ask(conn, wire.Noop); err != nil {
		return 0, err
	}
	return wire.Meta, nil
}

func ask(conn net.Conn, verb wire.Verb) (wire.Head, error) {
	head, err := exchange(conn, wire.Meta, &wire.Request{Verb: verb})
	if err == nil && head.Status >= wire.ClientError {
		err = errors.New(string(head.Text))
	}
	return head, err
}

// exchange sends a request that is answered with one line.
func exchange(conn net.Conn, protocol wire.Protocol, r *wire.Request) (wire.Head, error) {
	var head wire.Head
	if _, err := conn.Write(protocol.Write(nil, r)); err != nil {
		return head, err
	}
	room := make([]byte, wire.LineBytesMax+2)
	for have := 0; ; {
		n, err := conn.Read(room[have:])
		have += n
		line, taken, wrong := wire.Line(room[:have])
		if wrong != nil {
			return head, wrong
		}
		if taken > 0 {
			if wrong = protocol.Read(r.Verb, line, &head); wrong == nil && taken != have {
				wrong = wire.ErrGrammar
			}
			return head, wrong
		}
		if err != nil {
			return head, err
		}
	}
}

// knowsMeta: versions before 1.6.10 had another dialect of it.
func knowsMeta(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) != 3 {
		return false
	}
	end := 0
	for end < len(parts[2]) && parts[2][end] >= '0' && parts[2][end] <= '9' {
		end++
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	patch, err3 := strconv.Atoi(parts[2][:end])
	if err1 != nil || err2 != nil || err3 != nil {
		return false
	}
	return major > 1 || (major == 1 && (minor > 6 || (minor == 6 && patch >= 10)))
}
