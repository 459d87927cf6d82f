"""Celery: queues, results, chords, tasks for later, events and commands to workers, all kept in one server."""

import time
from threading import Timer

from celery import Celery, chain, chord, group

from checks import URL, add_unguarded, check, end, equals, long_texts, python, store, until

JOBS = 300

app = Celery("with_celery", broker=URL, backend=URL)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3, "priority_steps": [0, 3, 6, 9], "queue_order_strategy": "priority"},
    result_expires=600,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
)


@app.task
def add(a, b):
    store.incr("added")
    return a + b


@app.task
def twice(text):
    return text + text


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=5)
def fails_twice(self):
    if store.incr("tries") < 3:
        raise self.retry(countdown=0.1, exc=ValueError("not yet"))
    return self.request.retries


@app.task
def fails():
    raise KeyError("what was asked for")


@app.task
def clock():
    return time.time()


@app.task
def guarded():
    with store.lock("the lock", timeout=30):
        add_unguarded("guarded")


@app.task
def slow(name):
    if store.incr(f"begun:{name}") == 1:
        time.sleep(60)
    return name


@app.task
def noted(number):
    store.rpush("order", number)


def workers():
    return python("-m", "celery", "-A", "with_celery", "worker", "-c", "2", "-l", "WARNING", "-E", "-n", "one@here")


def main():
    # Before there is a worker, so that they wait in the queues.
    waiting = [noted.apply_async((n,), priority=n) for n in (9, 6, 3, 0)]

    @check
    def queues_by_priority():
        lists = {key: store.llen(key) for key in store.scan_iter("celery*", _type="list")}
        equals(sorted(lists.values()), [1, 1, 1, 1])

    first = workers()
    [result.get(timeout=60) for result in waiting]

    @check
    def highest_priority_first():
        # Two processes take them, so two neighbours may change places.
        order = [int(number) for number in store.lrange("order", 0, -1)]
        equals(sorted(order), [0, 3, 6, 9])
        assert set(order[:2]) == {0, 3}, order

    @check
    def tasks_and_results():
        results = group(add.s(n, n) for n in range(JOBS)).apply_async().get(timeout=120)
        equals(results, [2 * n for n in range(JOBS)])
        equals(store.get("added"), str(JOBS))

    @check
    def results_expire():
        result = add.delay(1, 2)
        equals(result.get(timeout=60), 3)
        key = app.backend.get_key_for_task(result.id)
        assert 0 < store.ttl(key) <= 600
        result.forget()
        assert not store.exists(key)

    @check
    def chains():
        equals(chain(add.s(1, 2), add.s(10), add.s(100))().get(timeout=60), 113)

    @check
    def chords():
        equals(chord((add.s(n, 1) for n in range(50)), total.s())().get(timeout=60), sum(range(50)) + 50)

    @check
    def retries():
        equals(fails_twice.delay().get(timeout=60), 2)
        equals(store.get("tries"), "3")

    @check
    def failures_are_told():
        result = fails.delay()
        try:
            result.get(timeout=60)
            raise AssertionError("it has not failed")
        except KeyError as error:
            equals(error.args, ("what was asked for",))
        equals(result.state, "FAILURE")

    @check
    def long_tasks_and_results():
        results = group(twice.s(text) for text in long_texts()).apply_async().get(timeout=120)
        equals([len(result) for result in results], [2 * len(text) for text in long_texts()])
        equals(results, [text + text for text in long_texts()])

    @check
    def tasks_for_later():
        began = time.time()
        assert clock.apply_async(countdown=1.5).get(timeout=60) >= began + 1.5

    @check
    def locks():
        group(guarded.s() for _ in range(100)).apply_async().get(timeout=120)
        equals(store.get("guarded"), "100")

    @check
    def commands_to_workers():
        equals(app.control.inspect(timeout=5).ping(), {"one@here": {"ok": "pong"}})
        stats = app.control.inspect(timeout=5).stats()["one@here"]
        assert stats["total"]["with_celery.add"] >= JOBS, stats["total"]

    @check
    def revoked_tasks_do_not_run():
        result = add.apply_async((1, 1), countdown=2)
        app.control.revoke(result.id)
        until(lambda: result.state == "REVOKED")

    @check
    def events():
        with app.connection() as connection:
            receiver = app.events.Receiver(connection)

            def succeeded(event):
                equals(event["result"], "10")
                receiver.should_stop = True

            receiver.handlers["task-succeeded"] = succeeded
            # When the receiver listens.
            Timer(1, add.delay, (5, 5)).start()
            receiver.capture(limit=None, timeout=30, wakeup=False)

    @check
    def tasks_of_a_killed_worker_are_given_again():
        result = slow.delay("a")
        until(lambda: store.get("begun:a"))
        end(first)
        time.sleep(3)
        workers()
        equals(result.get(timeout=60), "a")
        equals(store.get("begun:a"), "2")

    @check
    def nothing_is_left_in_queues():
        until(lambda: store.hlen("unacked") == 0 and store.zcard("unacked_index") == 0)
        equals([key for key in store.scan_iter("celery*", _type="list")], [])


if __name__ == "__main__":
    main()
