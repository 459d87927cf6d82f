"""Flask-Session: sessions of a site, each one string with a time to live, found by the ID in a cookie."""

from datetime import timedelta
from threading import Thread

from flask import Flask, request, session
from flask_session import Session
from redis import Redis

from checks import URL, check, equals, store, until

app = Flask(__name__)
app.config.update(
    SESSION_TYPE="redis",
    SESSION_REDIS=Redis.from_url(URL),
    SESSION_KEY_PREFIX="web:",
    PERMANENT_SESSION_LIFETIME=timedelta(seconds=1000),
)
Session(app)


@app.get("/of/<name>")
def told(name):
    return str(session.get(name, "none"))


@app.post("/of/<name>")
def put(name):
    session[name] = request.get_data(as_text=True)
    return "kept"


@app.post("/count")
def count():
    session["count"] = session.get("count", 0) + 1
    return "counted"


@app.post("/again")
def again():
    app.session_interface.regenerate(session)
    return "it has another ID"


@app.post("/leave")
def leave():
    session.clear()
    return "gone"


def key(client):
    return "web:" + client.get_cookie("session").value


def keys():
    return len(list(store.scan_iter("web:*")))


one, two = app.test_client(), app.test_client()


@check
def each_client_has_its_own():
    one.post("/of/user", data="ann")
    two.post("/of/user", data="bob")
    equals([client.get("/of/user").text for client in (one, two, app.test_client())], ["ann", "bob", "none"])
    equals(keys(), 2)


@check
def they_expire_some_time_after_the_last_request():
    equals([990 < store.ttl(key(client)) <= 1000 for client in (one, two)], [True, True])
    store.expire(key(one), 10)
    one.get("/of/user")
    equals(990 < store.ttl(key(one)) <= 1000, True)


@check
def long_ones():
    for length in (16300, 17000, 300000):
        one.post("/of/text", data="x" * length)
        equals(one.get("/of/text").text == "x" * length, True)
        assert store.strlen(key(one)) > length


@check
def requests_of_many_at_once():
    clients = [app.test_client() for _ in range(8)]
    threads = [Thread(target=lambda client=client: [client.post("/count") for _ in range(50)]) for client in clients]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    equals([client.get("/of/count").text for client in clients], ["50"] * 8)
    equals(keys(), 10)


@check
def another_id_has_what_there_was():
    before, old = key(one), app.test_client()
    old.set_cookie("session", before.removeprefix("web:"))
    one.post("/again")
    equals([store.exists(before), store.exists(key(one))], [0, 1])
    equals([one.get("/of/user").text, old.get("/of/user").text], ["ann", "none"])


@check
def what_is_left_is_deleted():
    before = key(two)
    two.post("/leave")
    equals([store.exists(before), two.get("/of/user").text], [0, "none"])


@check
def what_has_expired_is_none():
    app.config["PERMANENT_SESSION_LIFETIME"] = timedelta(seconds=1)
    three = app.test_client()
    three.post("/of/user", data="eve")
    its = key(three)
    until(lambda: not store.exists(its))
    equals(three.get("/of/user").text, "none")
