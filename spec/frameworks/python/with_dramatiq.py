"""Dramatiq: queues, acknowledgements and delays in one script, results in lists, limits in transactions."""

import logging
import threading
import time

import dramatiq
from dramatiq import group, pipeline
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits import Barrier, BucketRateLimiter, ConcurrentRateLimiter, RateLimitExceeded, WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend as LimitsBackend
from dramatiq.results import ResultFailure, Results
from dramatiq.results.backends import RedisBackend

from checks import URL, add_unguarded, check, end, equals, long_texts, python, store, until

JOBS = 300

# A worker that says nothing for two seconds is gone.
broker = RedisBroker(url=URL, heartbeat_timeout=2000, maintenance_chance=100000)
limits = LimitsBackend(url=URL)
broker.add_middleware(Results(backend=RedisBackend(url=URL)))
broker.add_middleware(GroupCallbacks(limits))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def add(a, b):
    store.incr("added")
    return a + b


@dramatiq.actor(store_results=True)
def twice(text):
    return text + text


@dramatiq.actor(store_results=True, max_retries=5, min_backoff=50, max_backoff=100)
def fails_twice():
    if store.incr("tries") < 3:
        raise ValueError("not yet")
    return "at last"


@dramatiq.actor(store_results=True, max_retries=0)
def fails():
    raise KeyError("what was asked for")


@dramatiq.actor(store_results=True)
def clock():
    return time.time()


@dramatiq.actor(max_retries=10000, min_backoff=10, max_backoff=50)
def guarded():
    with ConcurrentRateLimiter(limits, "one at a time", limit=1).acquire():
        add_unguarded("guarded")
        store.incr("guarded done")


@dramatiq.actor
def slow():
    if store.incr("begun") == 1:
        time.sleep(60)
    store.incr("done")


@dramatiq.actor
def all_done():
    store.incr("groups done")


@dramatiq.actor(priority=100, queue_name="order")
def later(name):
    store.rpush("order", name)


@dramatiq.actor(priority=0, queue_name="order")
def sooner(name):
    store.rpush("order", name)


def workers(*queues):
    words = ["-m", "dramatiq", "-p", "2", "-t", "4", "with_dramatiq"]
    return python(*words, *(["-Q", *queues] if queues else []))


def held(limiter):
    try:
        with limiter.acquire():
            return True
    except RateLimitExceeded:
        return False


def main():
    first = workers("default")

    @check
    def jobs_and_results():
        results = group(add.message(n, n) for n in range(JOBS)).run().get_results(block=True, timeout=60000)
        equals(list(results), [2 * n for n in range(JOBS)])
        equals(store.get("added"), str(JOBS))
        # By its acknowledgement: nothing is in the queue, nothing waits to be acknowledged.
        broker.join("default", timeout=10000)
        equals(store.keys("dramatiq:default*"), [])

    @check
    def results_expire():
        message = add.send(1, 2)
        equals(message.get_result(block=True, timeout=60000), 3)
        keys = [key for key in store.scan_iter(_type="list") if 0 < store.pttl(key) <= 600000]
        assert len(keys) > JOBS, len(keys)

    @check
    def retries():
        equals(fails_twice.send().get_result(block=True, timeout=60000), "at last")
        equals(store.get("tries"), "3")

    @check
    def failures_are_told_and_kept():
        message = fails.send()
        try:
            message.get_result(block=True, timeout=60000)
            raise AssertionError("it has not failed")
        except ResultFailure as failure:
            assert "what was asked for" in str(failure), failure
        until(lambda: store.zcard("dramatiq:default.XQ") == 1)
        equals(store.hlen("dramatiq:default.XQ.msgs"), 1)

    @check
    def long_messages_and_results():
        results = group(twice.message(text) for text in long_texts()).run().get_results(block=True, timeout=60000)
        equals(list(results), [text + text for text in long_texts()])

    @check
    def messages_for_later():
        began = time.time()
        message = clock.send_with_options(delay=1500)
        assert message.get_result(block=True, timeout=60000) >= began + 1.5

    @check
    def pipelines():
        pipe = pipeline([add.message(1, 2), add.message(10), add.message(100)]).run()
        equals(pipe.get_result(block=True, timeout=60000), 113)

    @check
    def callbacks_of_groups():
        all_of_them = group(add.message(n, 1) for n in range(50))
        all_of_them.add_completion_callback(all_done.message())
        all_of_them.run()
        until(lambda: store.get("groups done") == "1")

    @check
    def one_at_a_time():
        for _ in range(40):
            guarded.send()
        until(lambda: store.get("guarded done") == "40")
        equals(store.get("guarded"), "40")

    @check
    def limits_of_windows_and_buckets():
        window = WindowRateLimiter(limits, "window", limit=7, window=30)
        equals([held(window) for _ in range(10)], [True] * 7 + [False] * 3)
        bucket = BucketRateLimiter(limits, "bucket", limit=5, bucket=60000)
        # Unless the bucket ends meanwhile, which is one that begins with the minute.
        allowed = sum(held(bucket) for _ in range(8))
        assert allowed == 5 or time.time() % 60 < 1, allowed

    @check
    def barriers():
        barrier = Barrier(limits, "barrier")
        barrier.create(parties=5)
        passed = []
        threads = [threading.Thread(target=lambda: passed.append(barrier.wait(timeout=30000))) for _ in range(5)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        equals(passed, [True] * 5)

    @check
    def messages_of_a_killed_worker_are_given_again():
        slow.send()
        until(lambda: store.get("begun") == "1")
        end(first)
        time.sleep(2.5)
        workers()
        until(lambda: store.get("done") == "1")
        equals(store.get("begun"), "2")

    @check
    def queues_of_other_names():
        for name in "ab":
            later.send(name)
            sooner.send(name.upper())
        until(lambda: store.llen("order") == 4)
        equals(sorted(store.lrange("order", 0, -1)), ["A", "B", "a", "b"])
        broker.join("order", timeout=10000)


if __name__ == "__main__":
    logging.disable()
    # By the name under which workers import it.
    import with_dramatiq

    with_dramatiq.main()
