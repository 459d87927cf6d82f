"""redis-py's Lock: taken by SET NX, let go and kept longer by scripts that compare who holds it."""

import subprocess
import sys
import threading
import time

from redis.exceptions import LockError, LockNotOwnedError

from checks import add_unguarded, check, equals, store

PROCESSES, ROUNDS = 6, 40


def rounds():
    for _ in range(ROUNDS):
        with store.lock("lock", timeout=30, sleep=0.002):
            add_unguarded("guarded")


def main():
    @check
    def one_holder_at_a_time():
        holders = [subprocess.Popen([sys.executable, __file__, "rounds"]) for _ in range(PROCESSES)]
        equals([holder.wait(120) for holder in holders], [0] * PROCESSES)
        equals(store.get("guarded"), str(PROCESSES * ROUNDS))
        equals(store.exists("lock"), 0)

    @check
    def a_held_lock_is_refused():
        lock = store.lock("held", timeout=30)
        equals([lock.acquire(), store.lock("held").acquire(blocking=False), lock.locked(), lock.owned()], [True, False, True, True])
        began = time.monotonic()
        equals(store.lock("held").acquire(blocking_timeout=0.3), False)
        assert 0.2 <= time.monotonic() - began < 5
        lock.release()
        equals(lock.locked(), False)

    @check
    def another_cannot_let_it_go():
        lock = store.lock("another", timeout=30)
        lock.acquire()
        store.set("another", "somebody")
        for act in (lambda: lock.extend(10), lock.reacquire, lock.release):
            try:
                act()
                raise AssertionError("it is not its own")
            except LockNotOwnedError:
                pass
        equals(store.get("another"), "somebody")

    @check
    def it_is_kept_longer():
        lock = store.lock("longer", timeout=10)
        lock.acquire()
        lock.extend(10)
        assert 15000 < store.pttl("longer") <= 20000
        lock.extend(5, replace_ttl=True)
        assert 4000 < store.pttl("longer") <= 5000
        lock.reacquire()
        assert 9000 < store.pttl("longer") <= 10000
        lock.release()

    @check
    def it_expires():
        lock = store.lock("expires", timeout=0.1)
        lock.acquire()
        equals(store.lock("expires", timeout=10).acquire(blocking_timeout=10), True)
        try:
            lock.release()
            raise AssertionError("it has expired")
        except LockError:
            pass

    @check
    def a_lock_of_several_threads():
        lock = store.lock("threads", timeout=10, thread_local=False)
        lock.acquire()
        thread = threading.Thread(target=lock.release)
        thread.start()
        thread.join()
        equals(lock.locked(), False)

    @check
    def scripts_that_were_flushed_are_sent_again():
        lock = store.lock("flushed", timeout=10)
        lock.acquire()
        store.script_flush()
        lock.release()


if __name__ == "__main__":
    rounds() if sys.argv[1:] == ["rounds"] else main()
