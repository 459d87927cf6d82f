"""Threads count down one number by gets and cas. The number must have fallen by exactly as much as
cas calls succeeded: with one thread, with two, with many.

python-memcached sends set instead of cas unless it is told to keep tokens (cache_cas=True); a first
check makes sure that a conflict is seen as one.
"""

import threading

import memcache

SERVER = "localhost:11211"
ATTEMPTS = 2000
START = 1000000


def connect():
    return memcache.Client([SERVER], cache_cas=True)


def conflict_is_refused():
    first, second = connect(), connect()
    first.set("conflict", 1)
    first.gets("conflict")
    second.gets("conflict")
    assert second.cas("conflict", 2), "the first cas succeeds"
    assert not first.cas("conflict", 3), "a cas with an old token is refused"
    assert first.get("conflict") == 2
    print("conflict: ok")


def count_down(threads):
    key = "count-%d" % threads
    connect().set(key, START)
    stored = [0] * threads
    errors = []
    attempts = ATTEMPTS // threads

    def run(index):
        client = connect()
        try:
            for _ in range(attempts):
                value = client.gets(key)
                assert value is not None, "the number is lost"
                if client.cas(key, value - 1):
                    stored[index] += 1
        except Exception as error:
            errors.append(repr(error))

    workers = [threading.Thread(target=run, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    final = connect().get(key)
    assert not errors, errors
    assert final == START - sum(stored), (START, final, sum(stored))
    assert threads > 1 or sum(stored) == attempts, "alone, every cas succeeds"
    assert sum(stored) > 0
    print("%d threads, %d attempts, %d stored: ok" % (threads, attempts * threads, sum(stored)))


if __name__ == "__main__":
    conflict_is_refused()
    for count in (1, 2, 3, 8, 50):
        count_down(count)
