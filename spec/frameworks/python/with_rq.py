"""RQ: jobs in hashes, queues in lists, registries in sorted sets, locks and limits in scripts, commands by publishing."""

import time
from datetime import timedelta

from redis import Redis
from rq import Queue, Retry
from rq.command import send_stop_job_command
from rq.exceptions import DuplicateJobError
from rq.job import Job
from rq.rate_limit import RateLimit
from rq.registry import FailedJobRegistry, FinishedJobRegistry, ScheduledJobRegistry
from rq.worker import Worker

from checks import URL, add_unguarded, check, equals, long_texts, python, store, until

JOBS = 60


def add(a, b):
    store.incr("added")
    return a + b


def length(text):
    return len(text)


def same(text):
    return text


def fails_twice():
    if store.incr("tries") < 3:
        raise ValueError("not yet")
    return "at last"


def fails():
    raise KeyError("what was asked for")


def clock():
    return time.time()


def guarded():
    with store.lock("the lock", timeout=30):
        add_unguarded("guarded")


def unguarded():
    add_unguarded("one at a time")


def slow():
    time.sleep(60)


def note(name):
    store.rpush("order", name)


def value(job):
    until(lambda: job.get_status(refresh=True).value in ("finished", "failed"))
    return job.return_value(refresh=True)


def main():
    connection = Redis.from_url(URL)
    high, low = Queue("high", connection=connection), Queue("low", connection=connection)
    for name in ("c", "d"):
        low.enqueue(note, name)
    for name in ("b", "a"):
        high.enqueue(note, name, at_front=True)
    equals((len(high), len(low)), (2, 2))
    rq = ["-m", "rq.cli", "worker", "--url", URL, "--with-scheduler", "--logging_level", "WARNING"]
    workers = [python(*rq, "high", "low")]

    @check
    def first_queue_first():
        until(lambda: store.llen("order") == 4)
        equals(store.lrange("order", 0, -1), ["a", "b", "c", "d"])

    workers.append(python(*rq, "high", "low"))

    @check
    def jobs_and_results():
        data = [Queue.prepare_data(add, (n, n)) for n in range(JOBS)]
        jobs = high.enqueue_many(data)
        equals([value(job) for job in jobs], [2 * n for n in range(JOBS)])
        equals(store.get("added"), str(JOBS))
        until(lambda: FinishedJobRegistry(queue=high).count == JOBS + 2)
        assert 0 < store.ttl(jobs[0].key) <= 500

    @check
    def retries():
        job = high.enqueue(fails_twice, retry=Retry(max=3))
        equals(value(job), "at last")
        equals(store.get("tries"), "3")

    @check
    def failures_are_told():
        job = high.enqueue(fails)
        until(lambda: job.get_status(refresh=True).value == "failed")
        assert "what was asked for" in job.latest_result().exc_string
        assert job.id in FailedJobRegistry(queue=high).get_job_ids()
        FailedJobRegistry(queue=high).requeue(job.id)
        until(lambda: len(job.results()) == 2)

    @check
    def jobs_for_later():
        began = time.time()
        job = high.enqueue_in(timedelta(seconds=2), clock)
        assert job.id in ScheduledJobRegistry(queue=high)
        # It is kept in whole seconds.
        assert value(job) >= began + 1

    @check
    def jobs_that_depend_on_others():
        first = [low.enqueue(note, f"first {n}") for n in range(4)]
        job = high.enqueue(note, "last", depends_on=first)
        value(job)
        equals(store.lindex("order", -1), "last")
        equals(store.llen("order"), 9)

    @check
    def locks():
        for job in [low.enqueue(guarded) for _ in range(20)]:
            value(job)
        equals(store.get("guarded"), "20")

    @check
    def unique_jobs():
        job = low.enqueue_in(timedelta(seconds=300), clock, job_id="only-one", unique=True)
        try:
            low.enqueue(clock, job_id="only-one", unique=True)
            raise AssertionError("a second one")
        except DuplicateJobError:
            job.delete()

    @check
    def limits_how_many_run_at_once():
        one = RateLimit("one", 1)
        for job in [low.enqueue(unguarded, rate_limit=one) for _ in range(20)]:
            value(job)
        equals(store.get("one at a time"), "20")

    @check
    def long_jobs():
        jobs = [low.enqueue(length, text) for text in long_texts()]
        equals([value(job) for job in jobs], [len(text) for text in long_texts()])
        equals([list(Job.fetch(job.id, connection).args) for job in jobs], [[text] for text in long_texts()])

    @check
    def long_results():
        jobs = [low.enqueue(same, text) for text in long_texts()]
        assert [value(job) for job in jobs] == long_texts()

    @check
    def commands_to_workers():
        equals(len(Worker.all(connection)), 2)
        job = high.enqueue(slow)
        until(lambda: job.get_status(refresh=True).value == "started")
        send_stop_job_command(connection, job.id)
        until(lambda: job.get_status(refresh=True).value == "stopped")

    @check
    def deleted_jobs_leave_nothing():
        job = low.enqueue_in(timedelta(seconds=300), clock)
        job.delete()
        equals(Job.exists(job.id, connection), False)
        for registry in (ScheduledJobRegistry(queue=low), FailedJobRegistry(queue=high)):
            registry.cleanup()
        equals((len(high), len(low), ScheduledJobRegistry(queue=low).count), (0, 0, 0))
        equals(high.empty(), 0)


if __name__ == "__main__":
    # By the name under which workers import it.
    import with_rq

    with_rq.main()
