"""What the programs beside it share: checks that are told one by one, and workers that end with the program."""

import atexit
import hashlib
import os
import subprocess
import sys
import time

import redis

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
store = redis.Redis.from_url(URL, decode_responses=True)


def check(test):
    """Runs it and tells that it passed; an error ends the program."""
    test()
    print(f"{test.__name__.replace('_', ' ')}: ok", flush=True)


def until(holds, seconds=60):
    """Waits until it holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not come to hold"
        time.sleep(0.02)


def equals(got, wanted):
    assert got == wanted, f"{got!r}, not {wanted!r}"


def worker(*words):
    """A process that runs until the program ends."""
    process = subprocess.Popen(words, cwd=os.path.dirname(os.path.abspath(__file__)), start_new_session=True)
    atexit.register(end, process)
    return process


def python(*words):
    return worker(sys.executable, *words)


def end(process, signal=9):
    """Ends it with all that it has started."""
    try:
        os.killpg(process.pid, signal)
    except ProcessLookupError:
        pass
    process.wait()


def long_texts():
    """What payloads come to, about as long as lies beside others and much longer; compressed they are half of that."""

    def text(length):
        digests = (hashlib.sha256(f"{length} {n}".encode()).hexdigest() for n in range(length // 64 + 1))
        return "".join(digests)[:length]

    return [text(length) for length in (16000, 16400, 100000, 1000000)]


def add_unguarded(key):
    """Adds one to a number in two steps, so that two at once are seen: one of their additions is lost."""
    number = int(store.get(key) or 0)
    time.sleep(0.002)
    store.set(key, number + 1)
