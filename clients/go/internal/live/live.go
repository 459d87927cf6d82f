// Package live starts servers for tests, and checks that a test leaves nothing behind.
package live

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Program is the server that LARDER_SERVER names; without it the test is skipped.
func Program(t testing.TB) string {
	t.Helper()
	program := os.Getenv("LARDER_SERVER")
	if program == "" {
		t.Skip("LARDER_SERVER is not set: cargo xtask clients sets it")
	}
	return program
}

// words are the server's arguments. A stand-in, as memcached may be, says so in its name, and has no port for HTTP.
func words(program string, options ...string) []string {
	all := append([]string{"serve"}, options...)
	if strings.Contains(filepath.Base(program), "memcached") {
		return all
	}
	return append(all, "--http-port", "0")
}

// Serve starts the server with these options and returns the path of its socket. The server ends with the test.
func Serve(t testing.TB, options ...string) (string, *exec.Cmd) {
	t.Helper()
	program := Program(t)
	// The path of a socket has to be short.
	directory, err := os.MkdirTemp("", "larder")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	socket := filepath.Join(directory, "s")
	server := exec.Command(program, append(words(program, "-s", socket, "-m", "64", "-t", "2"), options...)...)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	for range 1000 {
		if conn, err := net.Dial("unix", socket); err == nil {
			_ = conn.Close()
			return socket, server
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return "", nil
}

// ServeTCP starts the server on free ports and returns its addresses: of memcached's protocol, and of Redis's.
func ServeTCP(t testing.TB, options ...string) (memcached, redis string, server *exec.Cmd) {
	t.Helper()
	program := Program(t)
	ports := filepath.Join(t.TempDir(), "ports")
	server = exec.Command(program, append(words(program, "-p", "-1", "--redis-port", "-1", "-m", "64", "-t", "1"), options...)...)
	server.Env = append(os.Environ(), "MEMCACHED_PORT_FILENAME="+ports)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	for range 1000 {
		text, _ := os.ReadFile(ports)
		for _, line := range strings.Split(string(text), "\n") {
			if port, found := strings.CutPrefix(line, "TCP INET: "); found {
				memcached = "127.0.0.1:" + port
			} else if port, found := strings.CutPrefix(line, "RESP INET: "); found {
				redis = "127.0.0.1:" + port
			}
		}
		if memcached != "" && redis != "" {
			return memcached, redis, server
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return "", "", nil
}

// Leaks fails the test if there are more goroutines or sockets at its end, after all other cleanups, than now. Not for tests that
// run beside others.
func Leaks(t testing.TB) {
	t.Helper()
	goroutines, sockets := runtime.NumGoroutine(), Sockets()
	t.Cleanup(func() {
		for range 500 {
			if runtime.NumGoroutine() <= goroutines && Sockets() <= sockets {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		stacks := make([]byte, 1<<16)
		t.Errorf("%d goroutines before, %d after; %d sockets before, %d after\n%s", goroutines, runtime.NumGoroutine(), sockets, Sockets(),
			stacks[:runtime.Stack(stacks, true)])
	})
}

// Sockets is how many sockets this process has open; 0 if unknown.
func Sockets() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	count := 0
	for _, entry := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			count++
		}
	}
	return count
}
