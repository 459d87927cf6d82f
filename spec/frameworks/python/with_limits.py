"""limits: windows that are fixed, that move with every hit, and that are reckoned from two, each in scripts."""

import threading
import time

from limits import RateLimitItemPerDay, RateLimitItemPerSecond, parse
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter

from checks import URL, check, equals, store

storage = storage_from_string(URL)
STRATEGIES = [FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter]


def each(test):
    """Tells of each strategy that it passed."""
    for strategy in STRATEGIES:
        test(strategy(storage), strategy.__name__)
        print(f"{test.__name__.replace('_', ' ')}, {strategy.__name__}: ok", flush=True)


@each
def as_many_as_there_may_be(limiter, name):
    limit = RateLimitItemPerDay(10)
    equals([limiter.test(limit, name) and limiter.hit(limit, name) for _ in range(13)], [True] * 10 + [False] * 3)
    equals(limiter.get_window_stats(limit, name).remaining, 0)
    equals(limiter.hit(limit, name, "another"), True)


@each
def costs(limiter, name):
    limit = RateLimitItemPerDay(10)
    key = f"{name} costs"
    equals([limiter.hit(limit, key, cost=cost) for cost in (7, 4, 3)][0], True)
    equals(limiter.test(limit, key, cost=4), False)


@each
def exact_among_many(limiter, name):
    limit = RateLimitItemPerDay(100)
    allowed = []
    hits = lambda: [allowed.append(1) for _ in range(50) if limiter.hit(limit, f"{name} many")]  # noqa: E731
    threads = [threading.Thread(target=hits) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    equals(len(allowed), 100)


@each
def the_window_ends(limiter, name):
    limit = RateLimitItemPerSecond(5, 2)
    # In the first half of a window.
    while time.time() % 2 > 0.5:
        time.sleep(0.01)
    key = f"{name} ends"
    equals([limiter.hit(limit, key) for _ in range(6)], [True] * 5 + [False])
    end = time.monotonic() + 6
    while not limiter.hit(limit, key):
        assert time.monotonic() < end
        time.sleep(0.02)


@each
def limits_are_forgotten(limiter, name):
    limit = RateLimitItemPerDay(10)
    limiter.clear(limit, name)
    equals(limiter.get_window_stats(limit, name).remaining, 10)
    equals(limiter.hit(limit, name), True)


@check
def a_moving_window_of_hits():
    limiter, limit = MovingWindowRateLimiter(storage), parse("4 per 1 second")
    hits = []
    began = time.monotonic()
    while time.monotonic() < began + 3:
        if limiter.hit(limit, "moves"):
            hits.append(time.monotonic())
        time.sleep(0.005)
    # In no second more than four.
    assert all(later - earlier > 0.95 for earlier, later in zip(hits, hits[4:])), hits
    assert len(hits) in (12, 13, 14), hits


@check
def everything_is_forgotten():
    equals(storage.check(), True)
    assert storage.reset() > 0
    equals(store.keys("LIMITS*"), [])
