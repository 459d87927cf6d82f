"""pylibmc by the binary protocol: each check that holds is a line that ends in `: ok`. With a user and a password as
arguments it authenticates by SASL, and checks the result of a wrong password, too.
"""

import sys

import pylibmc

SERVER = "127.0.0.1:11211"
LARGE = b"x" * 900000


def connect(**who):
    return pylibmc.Client([SERVER], binary=True, **who)


def values(mc):
    assert mc.set("k", "v") and mc.get("k") == "v"
    assert mc.get("none") is None
    assert not mc.add("k", "x") and mc.add("n", "x")
    assert mc.replace("k", "y") and mc.get("k") == "y"
    assert mc.delete("k") and not mc.delete("k")


def many(mc):
    pairs = {f"a{n}": n for n in range(200)}
    assert mc.set_multi(pairs) == []
    assert mc.get_multi([f"a{n}" for n in range(300)]) == pairs
    assert mc.delete_multi(list(pairs))


def additions(mc):
    assert mc.set("s", b"ab") and mc.append("s", b"c") and mc.prepend("s", b"_")
    assert mc.get("s") == b"_abc"


def numbers(mc):
    mc.set("c", 5)
    assert mc.incr("c", 3) == 8 and mc.decr("c", 1) == 7
    assert mc.touch("c", 100)


def tokens(mc):
    mc.behaviors["cas"] = True
    mc.set("t", 1)
    value, token = mc.gets("t")
    assert value == 1 and mc.cas("t", 2, token) and not mc.cas("t", 3, token)
    assert mc.get("t") == 2


def large(mc):
    assert mc.set("large", LARGE) and mc.get("large") == LARGE


def figures(mc):
    assert int(mc.get_stats()[0][1]["curr_items"]) > 0
    assert len(mc.get_stats("settings")[0][1]) > 0


def flush(mc):
    mc.set("k", "v")
    assert mc.flush_all() and mc.get("k") is None


who = dict(zip(("username", "password"), sys.argv[1:]))
for check in (values, many, additions, numbers, tokens, large, figures, flush):
    check(connect(**who))
    print(f"{check.__name__}: ok")
if who:
    try:
        connect(username=who["username"], password="wrong").set("k", "v")
    except pylibmc.Error:
        print("wrong password: ok")
