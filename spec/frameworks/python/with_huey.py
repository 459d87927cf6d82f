"""Huey: tasks in lists, results and locks in a hash, schedules in sorted sets that a script takes from."""

import time

from huey import PriorityRedisExpireHuey, RedisHuey, crontab
from huey.api import chord
from huey.contrib.helpers import RedisSemaphore
from huey.exceptions import RateLimitExceeded, TaskException, TaskLockedException

from checks import URL, add_unguarded, check, equals, python, store, until

JOBS = 300

huey = RedisHuey("tasks", url=URL)
# Tasks in sorted sets, results as keys that expire.
urgent = PriorityRedisExpireHuey("urgent", url=URL, expire_time=600)


@huey.task()
def add(a, b):
    store.incr("added")
    return a + b


@huey.task()
def total(numbers):
    return sum(numbers)


@huey.task(retries=5, retry_delay=0)
def fails_twice():
    if store.incr("tries") < 3:
        raise ValueError("not yet")
    store.set("tried", "at last")


@huey.task()
def fails():
    raise KeyError("what was asked for")


@huey.task()
def clock():
    return time.time()


@huey.task(retries=10000, retry_delay=0)
def guarded():
    with huey.lock_task("one at a time"):
        add_unguarded("guarded")
        store.incr("guarded done")


@huey.periodic_task(crontab(minute="*"))
def every_minute():
    store.incr("minutes")


@urgent.task()
def note(name):
    store.rpush("order", name)
    return name


def main():
    for name, priority in (("a", 1), ("b", 3), ("c", 2)):
        note(name, priority=priority)
    equals(urgent.pending_count(), 3)
    consumer = ["-m", "huey.bin.huey_consumer", "-q", "-d", "0.05", "-m", "0.1", "-s", "1"]
    python(*consumer, "-w", "1", "with_huey.urgent")
    for _ in range(2):
        python(*consumer, "-w", "2", "-k", "process", "with_huey.huey")

    @check
    def most_urgent_first():
        until(lambda: store.llen("order") == 3)
        equals(store.lrange("order", 0, -1), ["b", "c", "a"])
        result = note("d")
        until(lambda: store.llen("order") == 4)
        until(lambda: result.is_ready())
        equals([0 < store.ttl(key) <= 600 for key in store.scan_iter(f"*{result.id}*")], [True])

    @check
    def tasks_and_results():
        results = add.map((n, n) for n in range(JOBS))
        equals(results.get(blocking=True, timeout=60), [2 * n for n in range(JOBS)])
        equals(store.get("added"), str(JOBS))
        equals((huey.pending_count(), huey.result_count()), (0, 0))

    @check
    def retries():
        # Each failure is a result that the next takes the place of.
        fails_twice()
        until(lambda: store.get("tried") == "at last")
        equals(store.get("tries"), "3")

    @check
    def failures_are_told():
        result = fails()
        try:
            result.get(blocking=True, timeout=60)
            raise AssertionError("it has not failed")
        except TaskException as error:
            assert "what was asked for" in error.metadata["error"], error.metadata

    @check
    def tasks_for_later():
        began = time.time()
        result = clock.schedule(delay=2)
        # It looks once a second, and goes by the second.
        assert result.get(blocking=True, timeout=60) >= began + 1
        equals(huey.scheduled_count(), 0)

    @check
    def pipelines():
        pipeline = add.s(1, 2).then(add, 10).then(add, 100)
        equals(huey.enqueue(pipeline).get(blocking=True, timeout=60), [3, 13, 113])

    @check
    def chords():
        result = huey.enqueue(chord([add.s(n, 1) for n in range(20)], total.s()))
        equals(result.get(blocking=True, timeout=60), sum(range(20)) + 20)

    @check
    def locks():
        for _ in range(40):
            guarded()
        until(lambda: store.get("guarded done") == "40")
        equals(store.get("guarded"), "40")
        with huey.lock_task("mine"):
            try:
                huey.lock_task("mine").acquire()
                raise AssertionError("held twice")
            except TaskLockedException:
                pass

    @check
    def semaphores():
        semaphore = RedisSemaphore(huey, "three", 3)
        names = [semaphore.acquire() for _ in range(5)]
        equals([bool(name) for name in names], [True] * 3 + [False] * 2)
        equals([semaphore.renew(names[0]), semaphore.release(names[0]), semaphore.renew(names[0])], [True, 1, False])
        equals(bool(semaphore.acquire()), True)

    @check
    def limits_per_time():
        limit = huey.rate_limit("ten", limit=10, per=86400)
        allowed = 0
        for _ in range(15):
            try:
                limit.acquire()
                allowed += 1
            except RateLimitExceeded:
                pass
        equals(allowed, 10)

    @check
    def revoked_tasks_do_not_run():
        result = add.schedule((1, 1), delay=2)
        result.revoke()
        equals(result.is_revoked(), True)
        until(lambda: huey.scheduled_count() == 0)
        time.sleep(0.5)
        equals(result.get(), None)

    @check
    def periodic_tasks():
        until(lambda: int(store.get("minutes") or 0) >= 1, 90)


if __name__ == "__main__":
    # By the name under which consumers import it.
    import with_huey

    with_huey.main()
