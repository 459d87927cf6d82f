"""cacheops: answers of Django's queries, and sets of those that a row's change concerns, written and dropped by scripts."""

import threading
import time

import django
from django.conf import settings

from checks import URL, check, equals, store

settings.configure(
    SECRET_KEY="none",
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "cacheops"],
    CACHEOPS_REDIS=URL,
    CACHEOPS={"auth.*": {"ops": "all", "timeout": 600}},
)
django.setup()

from cacheops import CacheMiss, cache, cached, cached_as, invalidate_model  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402

call_command("migrate", verbosity=0)
for n in range(300):
    User.objects.create(username=f"user{n:03}", first_name="ab"[n % 2], last_name="x" * 100)
store.flushdb()


def asked(answer):
    """How often the database is asked for it, and what it is."""
    with CaptureQueriesContext(connection) as queries:
        told = answer()
    return len(queries), told


def named(first_name):
    return lambda: [user.username for user in User.objects.filter(first_name=first_name).order_by("username")]


def answers():
    """Those of lists, and those of counts and sums."""
    return sum(len(list(store.scan_iter(kind))) for kind in ("q:*", "as:*"))


@check
def answers_are_kept():
    expected = [f"user{n:03}" for n in range(0, 300, 2)]
    equals([asked(named("a")), asked(named("a"))], [(1, expected), (0, expected)])
    equals([590 < store.ttl(key) <= 600 for key in store.scan_iter("q:*")], [True])
    equals(store.smembers("schemes:auth_user"), {"first_name"})


@check
def rows_counts_and_whether_there_are_any():
    of_b = User.objects.filter(first_name="b")
    for answer, told in (
        (lambda: User.objects.get(username="user007").first_name, "b"),
        (lambda: of_b.all().count(), 150),
        (lambda: of_b.all().exists(), True),
        (lambda: User.objects.filter(username="nobody").first(), None),
    ):
        equals([asked(answer), asked(answer)], [(1, told), (0, told)])


@check
def a_change_concerns_its_own_answers_alone():
    equals([asked(named(name))[0] for name in "ab"], [0, 1])
    user = User.objects.get(username="user000")
    user.last_name = "y"
    user.save()
    equals([asked(named(name))[0] for name in "ab"], [1, 0])
    user.first_name = "b"
    user.save()
    both = [asked(named(name)) for name in "ab"]
    equals([queries for queries, _ in both], [1, 1])
    equals([len(names) for _, names in both], [149, 151])


@check
def what_is_rolled_back_changes_no_answer():
    try:
        with transaction.atomic():
            User.objects.create(username="brief", first_name="a")
            raise ValueError
    except ValueError:
        equals(asked(named("a"))[0], 0)
    with transaction.atomic():
        User.objects.create(username="lasting", first_name="a")
    equals(asked(named("a"))[1][0], "lasting")


@check
def functions_are_called_when_their_rows_have_changed():
    calls = []

    @cached_as(User.objects.filter(first_name="a"), timeout=100)
    def total(factor):
        calls.append(factor)
        return factor * len(calls)

    equals([total(10), total(10), total(20), total(10)], [10, 10, 40, 10])
    User.objects.get(username="user002").save()
    equals([total(10), total(20), calls], [30, 80, [10, 20, 10, 20]])


@check
def many_answers_of_one_condition_go_together():
    for n in range(500):
        User.objects.filter(first_name="c", pk__gt=n).count()
    kept = store.smembers("conj:auth_user:first_name=c")
    equals([len(kept), store.exists(*kept)], [500, 500])
    others = answers() - 500
    User.objects.create(username="first of c", first_name="c")
    equals([store.exists(*kept), store.exists("conj:auth_user:first_name=c"), answers()], [0, 0, others])
    equals(User.objects.filter(first_name="c", pk__gt=7).count(), 1)


@check
def all_of_a_model_go_together():
    for n in range(1000):
        User.objects.filter(username=f"nobody {n}").count()
    equals(len(list(store.scan_iter("conj:auth_user:username=nobody *"))), 1000)
    invalidate_model(User)
    equals([answers(), list(store.scan_iter("conj:*"))], [0, []])
    equals([asked(named("a"))[0] for _ in range(2)], [1, 0])


@check
def simple_answers_with_a_time():
    calls = []

    @cached(timeout=100)
    def slow(n):
        calls.append(n)
        return n * n

    equals([slow(3), slow(3), slow(4), calls], [9, 9, 16, [3, 4]])
    slow.invalidate(3)
    equals([slow(3), slow(4), calls], [9, 16, [3, 4, 3]])
    cache.set("told", {"text": "x" * 20000}, timeout=100)
    equals([len(cache.get("told")["text"]), 90 < store.ttl("told") <= 100], [20000, True])
    cache.delete("told")
    try:
        cache.get("told")
        raise AssertionError("it is still there")
    except CacheMiss:
        pass


@check
def one_computes_what_many_wait_for():
    @cached_as(User, lock=True, timeout=100)
    def slow():
        store.incr("computed")
        time.sleep(0.5)
        return 42

    told = []
    threads = [threading.Thread(target=lambda: told.append(slow())) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    equals([told, store.get("computed")], [[42] * 8, "1"])
