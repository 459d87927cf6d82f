"""django-redis: Django's cache and its sessions, patterns, locks, and the cache's own hashes and sets."""

import threading
import time

import django
from django.conf import settings

from checks import URL, check, equals, store


def cache_of(database, **options):
    return {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": f"{URL.rsplit('/', 1)[0]}/{database}",
        "KEY_PREFIX": "site",
        "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient", **options},
    }


settings.configure(
    SECRET_KEY="none",
    USE_TZ=True,
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    CACHES={
        "default": cache_of(0),
        "small": cache_of(
            1,
            COMPRESSOR="django_redis.compressors.zlib.ZlibCompressor",
            SERIALIZER="django_redis.serializers.json.JSONSerializer",
        ),
    },
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import cache, caches  # noqa: E402


@check
def values_of_all_kinds():
    for value in (1, -7, 1.5, True, "text", "wörter", b"\x00\r\n\xff", None, [1, {"a": (2, 3)}], "x" * 100000):
        cache.set("value", value, 100)
        equals(cache.get("value", "absent"), value)
    equals(cache.get("none", "absent"), "absent")
    equals(store.exists("site:1:value"), 1)


@check
def add_touch_and_delete():
    equals([cache.add("added", 1), cache.add("added", 2), cache.get("added")], [True, False, 1])
    equals([cache.touch("added", 1000), cache.touch("none", 1000)], [True, False])
    equals(990 < cache.ttl("added") <= 1000, True)
    equals([bool(cache.delete("added")), bool(cache.delete("added")), cache.has_key("added")], [True, False, False])


@check
def expiry():
    cache.set("short", 1, 0.05)
    cache.set("never", 1, None)
    cache.set("gone", 1, 0)
    time.sleep(0.1)
    equals([cache.get("short"), cache.get("never"), cache.get("gone")], [None, 1, None])
    equals([cache.ttl("never"), cache.ttl("short")], [None, 0])
    equals([cache.expire("never", 50), cache.ttl("never"), cache.persist("never"), cache.ttl("never")], [True, 50, True, None])
    equals(cache.pexpire("never", 5000) and 4000 < cache.pttl("never") <= 5000, True)


@check
def many_at_once():
    numbers = {f"n{n}": n for n in range(1000)}
    cache.set_many(numbers, 100)
    equals(cache.get_many([*numbers, "none"]), numbers)
    equals(cache.delete_many(list(numbers)[:500]), 500)
    equals(len(cache.get_many(numbers)), 500)


@check
def patterns():
    equals(len(cache.keys("n*")), 501)
    equals(len(set(cache.iter_keys("n[0-9]*", itersize=50))), 500)
    equals(cache.delete_pattern("n[0-9]*"), 500)
    equals(cache.keys("n*"), ["never"])


@check
def counters():
    cache.set("count", 40)
    equals([cache.incr("count", 2), cache.decr("count"), cache.get("count")], [42, 41, 41])
    try:
        cache.incr("none")
        raise AssertionError("it counts what is not there")
    except ValueError:
        equals(cache.has_key("none"), False)
    cache.set("count", 0, 100)
    threads = [threading.Thread(target=lambda: [cache.incr("count") for _ in range(200)]) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    equals(cache.get("count"), 800)
    equals(90 < cache.ttl("count") <= 100, True)


@check
def versions():
    cache.set("versioned", "first", version=1)
    equals(cache.incr_version("versioned"), 2)
    equals([cache.get("versioned"), cache.get("versioned", version=2)], [None, "first"])


@check
def get_or_set():
    equals([cache.get_or_set("made", lambda: "once"), cache.get_or_set("made", lambda: "twice")], ["once", "once"])


@check
def locks():
    number = [0]

    def add():
        for _ in range(25):
            with cache.lock("lock", timeout=30):
                was = number[0]
                time.sleep(0.001)
                number[0] = was + 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    equals(number, [100])
    equals(cache.has_key("lock"), False)


@check
def sets_and_hashes():
    equals([cache.sadd("set", 1, 2, "three"), cache.scard("set"), cache.sismember("set", "three")], [3, 3, True])
    cache.sadd("other", 2, 4)
    equals([cache.sinter("set", "other"), cache.sunion("set", "other")], [{2}, {1, 2, 4, "three"}])
    equals([cache.smove("set", "other", 1), cache.smembers("other"), cache.srem("set", 2)], [True, {1, 2, 4}, 1])
    equals(set(cache.sscan_iter("other", count=1)), {1, 2, 4})
    equals([cache.hset("hash", "field", [1, 2]), cache.hlen("hash"), cache.hexists("hash", "field")], [1, 1, True])
    equals([cache.hkeys("hash"), cache.hdel("hash", "field"), cache.hlen("hash")], [["field"], 1, 0])


@check
def compressed_values_of_another_database():
    small = caches["small"]
    small.set("large", ["word"] * 10000)
    equals([small.get("large"), cache.get("large")], [["word"] * 10000, None])
    small.clear()
    equals([small.get("large"), cache.get("made")], [None, "once"])


@check
def sessions():
    session = SessionStore()
    session["user"] = {"id": 7, "names": ["a", "b"]}
    session.set_expiry(1000)
    session.save()
    again = SessionStore(session.session_key)
    equals([again["user"], again.exists(session.session_key)], [{"id": 7, "names": ["a", "b"]}, True])
    equals([990 < store.ttl(key) <= 1000 for key in store.scan_iter("*sessions*")], [True])
    key = session.session_key
    again.cycle_key()
    equals([SessionStore(key).load(), SessionStore(again.session_key)["user"]["id"]], [{}, 7])
    again.flush()
    equals(list(store.scan_iter("*sessions*")), [])
