"""A driver of the lab: Python clients as a process that is told what to do by lines, as crates/lab/src/driver.rs says.

Each caller is a thread with a client of its own. Values are compared byte by byte with those that are due.
"""

import json
import socket
import struct
import sys
import threading
import time

import memcache
import pylibmc
import pymemcache

SET, GET = 0, 1
MANY_KEYS = 100
WORD = (1 << 64) - 1
VERSIONS = [
    ["pymemcache", pymemcache.__version__],
    ["pylibmc", pylibmc.__version__],
    ["python-memcached", memcache.__version__],
    ["by hand", ""],
]


def value(key, version, count):
    """The lab's value of a key at a version."""
    if count < 24:
        version = 0
    x = (key * 0xD6E8FEB86659FD93 & WORD) ^ (version << 32 | version >> 32) & WORD ^ count << 17
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    x ^= x >> 31
    out = bytearray(struct.pack("<QQ", key, version) if count >= 24 else b"")
    while len(out) < count:
        out += struct.pack("<Q", x)
        x = x + 0x9E3779B97F4A7C15 & WORD
    return bytes(out[:count])


def bucket(ns):
    """Exact below 64 ns, then 64 buckets for each power of two."""
    if ns < 64:
        return ns
    power = ns.bit_length() - 1
    return (power - 5) * 64 + (ns >> power - 6 & 63)


def bracketed(job):
    """Where the server is: the path of its Unix socket, or address and port, where an IPv6 address stands in brackets."""
    if job["socket"]:
        return job["socket"]
    return ("[%s]:%d" if ":" in job["host"] else "%s:%d") % (job["host"], job["port"])


class Told(Exception):
    """An error that a client does not raise."""


class Library:
    """What `self.client` of most libraries does alike."""

    def get(self, key):
        return self.client.get(key)

    def set(self, key, what):
        if not self.client.set(key, what):
            raise Told("it is not stored")

    def many(self, keys):
        return self.client.get_multi(keys)

    def close(self):
        self.client.disconnect_all()


class Pymemcache(Library):
    def __init__(self, job):
        # As shipped it asks for no reply to a set: that would not be the same work.
        seconds, path = job["timeout_ms"] / 1000, job["socket"]
        where = path or (job["host"], job["port"])
        self.client = pymemcache.Client(
            where, connect_timeout=seconds, timeout=seconds, no_delay=not path, default_noreply=False
        )

    def many(self, keys):
        return self.client.get_many(keys)

    def close(self):
        self.client.close()


class Pylibmc(Library):
    def __init__(self, job):
        wait = {"connect_timeout": job["timeout_ms"], "_poll_timeout": job["timeout_ms"]}
        self.client = pylibmc.Client([bracketed(job)], behaviors={"tcp_nodelay": True, **wait})


class PythonMemcached(Library):
    def __init__(self, job):
        # A server that failed is asked again at once, and not after 30 s: else all is a miss until then.
        kind = "unix:" if job["socket"] else "inet6:" if ":" in job["host"] else ""
        where = kind + bracketed(job)
        self.client = memcache.Client([where], socket_timeout=job["timeout_ms"] / 1000, dead_retry=0)


class ByHand:
    """The least that a program can do."""

    def __init__(self, job):
        self.where, self.timeout = (job["host"], job["port"]), job["timeout_ms"] / 1000
        self.path, self.socket = job["socket"], None

    def connected(self):
        if self.path:
            made = socket.socket(socket.AF_UNIX)
            made.settimeout(self.timeout)
            try:
                made.connect(self.path)
            except BaseException:
                made.close()
                raise
            return made
        made = socket.create_connection(self.where, self.timeout)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def ask(self, request, values, keys):
        try:
            if self.socket is None:
                self.socket = self.connected()
                self.lines = self.socket.makefile("rb")
            self.socket.sendall(request)
            found = {}
            while True:
                line = self.lines.readline()
                if line in (b"END\r\n", b"STORED\r\n") and values == (line == b"END\r\n"):
                    return found
                words = line.split()
                if not values or len(words) != 4 or words[1].decode() not in keys:
                    raise Told("a reply that was not expected")
                found[words[1].decode()] = self.lines.read(int(words[3]) + 2)[:-2]
        except BaseException:
            self.close()
            raise

    def get(self, key):
        return self.ask(b"get %s\r\n" % key.encode(), True, (key,)).get(key)

    def set(self, key, what):
        self.ask(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(what), what), False, ())

    def many(self, keys):
        return self.ask(b"get %s\r\n" % " ".join(keys).encode(), True, set(keys))

    def close(self):
        if self.socket is not None:
            self.lines.close()
            self.socket.close()
            self.socket = None


CLIENTS = {"pymemcache": Pymemcache, "pylibmc": Pylibmc, "python-memcached": PythonMemcached, "by hand": ByHand}

connections = 0


def count_connections(event, _):
    """Of sockets that Python opens: those of pylibmc are not seen."""
    global connections
    if event == "socket.connect":
        connections += 1


class Caller:
    """A thread's counts."""

    def __init__(self, job, space, number):
        self.job, self.space = job, space
        self.client = CLIENTS[job["client"]](job)
        self.at = number * 37 % len(space.names)
        self.reset()

    def reset(self):
        self.calls = self.ok = self.misses = self.told = self.timeouts = self.wrong = 0
        self.told_ns = self.last_error_ns = self.first_error_at = 0
        self.error = ""
        self.histogram = {}

    def call(self, op):
        at, names = self.at, self.space.names
        key = names[at]
        self.at = (at + 1) % len(names)
        self.calls += 1
        try:
            if op == SET:
                self.client.set(key, self.space.values[key])
            elif op == GET:
                got = self.client.get(key)
                if got is None:
                    self.misses += 1
                    return
                if got != self.space.values[key]:
                    self.wrong += 1
            else:
                found = self.client.many(self.space.twice[at : at + MANY_KEYS])
                self.misses += MANY_KEYS - len(found)
                values = self.space.values
                self.wrong += sum(1 for key in found if found[key] != values.get(key))
            self.ok += 1
        except Exception as error:
            self.told += 1
            text = "%s: %s" % (type(error).__name__, error)
            if isinstance(error, TimeoutError) or "timeout" in text.lower():
                self.timeouts += 1
            if self.told == 1:
                self.first_error_at, self.error = self.calls, text[:150]

    def timed(self, op, began, last, pause):
        told = self.told
        self.call(op)
        now = time.monotonic_ns()
        at = bucket(now - last)
        self.histogram[at] = self.histogram.get(at, 0) + 1
        if self.told != told:
            self.told_ns += now - last
            self.last_error_ns = now - began
            if pause:
                time.sleep(pause / 1e9)
                now = time.monotonic_ns()
        return now

    def steady(self, began):
        op, limit, pause = self.job["op"], self.job["time_ns"], self.job["pause_ns"]
        most = self.job["ops_max"] // max(self.job["callers"], 1)
        last = began
        while self.calls < most and (not limit or last - began < limit):
            last = self.timed(op, began, last, pause)


class Space:
    """Names of keys and their values."""

    def __init__(self, job):
        ids = range(job["first"], job["first"] + job["keys"])
        self.names = ["key:%012d" % number for number in ids]
        self.twice = self.names + self.names[:MANY_KEYS]
        self.values = {name: value(number, job["version"], job["value_bytes"]) for name, number in zip(self.names, ids)}


def say(what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def run(job, hear):
    global connections
    connections = 0
    space = Space(job)
    callers = [Caller(job, space, number) for number in range(max(job["callers"], 1))]
    gate, burst = threading.Barrier(len(callers) + 1), threading.Barrier(len(callers))
    alone = len(callers) == 1

    def warm(caller):
        if not job["cold"] and not job["bursts"]:
            for _ in range(20):
                caller.call(job["op"])
        caller.reset()

    def work(caller):
        warm(caller)
        gate.wait()
        gate.wait()
        began = time.monotonic_ns()
        if not job["bursts"]:
            caller.steady(began)
        for _ in range(job["bursts"]):
            burst.wait()
            caller.timed(job["op"], began, time.monotonic_ns(), 0)
            burst.wait()
            time.sleep(job["pause_ns"] / 1e9)
        gate.wait()

    threads = [] if alone else [threading.Thread(target=work, args=(caller,)) for caller in callers]
    for thread in threads:
        thread.start()
    if alone:
        warm(callers[0])
    else:
        gate.wait()
    say({"ready": 1})
    if not hear():
        return
    used, began = time.process_time_ns(), time.monotonic_ns()
    if alone:
        callers[0].steady(began)
    else:
        gate.wait()
        gate.wait()
    took, used = time.monotonic_ns() - began, time.process_time_ns() - used
    for thread in threads:
        thread.join()
    done = {"done": 1, "return_ns": took, "barrier_ns": took, "cpu_ns": used, "error": "", "first_error_at": 0}
    for name in ("calls", "ok", "misses", "told", "timeouts", "wrong", "told_ns"):
        done[name] = sum(getattr(caller, name) for caller in callers)
    done["last_error_ns"] = max(caller.last_error_ns for caller in callers)
    done["connections"] = connections
    for caller in callers:
        if caller.told and not done["error"]:
            done["error"], done["first_error_at"] = caller.error, caller.first_error_at
    histogram = {}
    for caller in callers:
        for at, count in caller.histogram.items():
            histogram[at] = histogram.get(at, 0) + count
    done["histogram"] = sorted(histogram.items())
    say(done)
    for caller in callers:
        caller.client.close()


def main():
    sys.addaudithook(count_connections)
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        if asked["do"] == "hello":
            version = "Python " + sys.version.split()[0]
            say({"hello": version, "value": value(305419896, 7, 61).hex(), "clients": VERSIONS})
        elif asked["do"] == "run":
            try:
                run(asked, lambda: sys.stdin.readline() != "")
            except Exception as error:
                say({"failed": "%s: %s" % (type(error).__name__, error)})
                raise
        else:
            say({"failed": asked["do"] + " is not understood"})


main()
