// Talks to a cache server as programs that use ioredis do, and says of each kind of call whether it did
// what it should: a line "name: ok", or the error and exit 1.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const Redis = require("ioredis");

const port = Number(process.argv[2]);
// With LARDER_TLS, a folder of certificates: over TLS, as a user with a password. The certificate of the name LARDER_CERTIFICATE is
// shown.
const secured = () => {
  const { LARDER_TLS: folder, LARDER_CERTIFICATE: name, LARDER_USER: username, LARDER_PASSWORD: password } = process.env;
  if (!folder) return {};
  const read = (file) => fs.readFileSync(path.join(folder, file));
  const own = name ? { cert: read(`${name}.crt`), key: read(`${name}.key`) } : {};
  return { username, password, tls: { ca: read("ca.crt"), ...own } };
};
const connect = (options) => new Redis({ port, host: "127.0.0.1", ...secured(), ...options });

const checks = {
  async strings(redis) {
    assert.equal(await redis.set("a", "1"), "OK");
    assert.equal(await redis.get("a"), "1");
    assert.equal(await redis.get("missing"), null);
    assert.equal(await redis.set("a", "2", "NX"), null);
    assert.equal(await redis.set("a", "2", "XX", "GET"), "1");
    assert.equal(await redis.set("b", "2", "EX", 100, "NX"), "OK");
    assert.equal(await redis.getdel("b"), "2");
    const binary = Buffer.from([0, 13, 10, 255]);
    assert.equal(await redis.mset({ x: 1, y: "two", z: binary }), "OK");
    assert.deepEqual(await redis.mget("x", "missing", "y"), ["1", null, "two"]);
    assert.deepEqual(await redis.getBuffer("z"), binary);
    assert.equal(await redis.append("y", " three"), 9);
    assert.equal(await redis.getrange("y", 4, -1), "three");
  },

  async expiry(redis) {
    await redis.set("a", "1", "PX", 100000);
    assert.equal(await redis.ttl("a"), 100);
    assert.equal(await redis.expire("a", 50, "GT"), 0);
    assert.equal(await redis.expire("a", 200, "GT"), 1);
    assert.equal(await redis.getex("a", "PERSIST"), "1");
    assert.equal(await redis.ttl("a"), -1);
    await redis.set("short", "1", "PX", 20);
    while (await redis.exists("short")) await new Promise((resolve) => setTimeout(resolve, 5));
  },

  async counters(redis) {
    assert.equal(await redis.incr("n"), 1);
    assert.equal(await redis.incrby("n", 41), 42);
    assert.equal(await redis.decr("n"), 41);
    assert.equal(await redis.incrbyfloat("n", 0.5), "41.5");
  },

  async scanning(redis) {
    await redis.mset(Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`key:${i}`, i])));
    const seen = new Set();
    for await (const keys of redis.scanStream({ match: "key:*", count: 50 })) keys.forEach((key) => seen.add(key));
    assert.equal(seen.size, 500);
    assert.equal(await redis.dbsize(), 500);
  },

  async hashes(redis) {
    assert.equal(await redis.hset("h", { user: "ann", count: 1 }), 2);
    assert.equal(await redis.hset("h", "user", "bob", "mail", "b@x"), 1);
    assert.equal(await redis.hget("h", "user"), "bob");
    assert.equal(await redis.hget("h", "missing"), null);
    assert.equal(await redis.hincrby("h", "count", 41), 42);
    assert.deepEqual(await redis.hmget("h", "count", "missing"), ["42", null]);
    assert.equal(await redis.hsetnx("h", "user", "eve"), 0);
    assert.equal(await redis.hdel("h", "mail", "missing"), 1);
    assert.deepEqual(await redis.hgetall("h"), { user: "bob", count: "42" });
    assert.deepEqual(await redis.hkeys("h"), ["user", "count"]);
    assert.equal(await redis.hstrlen("h", "user"), 3);
    const many = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`f${i}`, String(i)]));
    assert.equal(await redis.hset("large", many), 1000);
    assert.deepEqual(await redis.hgetall("large"), many);
    const seen = {};
    for await (const page of redis.hscanStream("large", { match: "f*", count: 50 })) {
      for (let i = 0; i < page.length; i += 2) seen[page[i]] = page[i + 1];
    }
    assert.deepEqual(seen, many);
    const binary = Buffer.from([0, 13, 10, 255]);
    await redis.hset("b", binary, binary);
    assert.deepEqual(await redis.hgetBuffer("b", binary), binary);
    await assert.rejects(redis.lpush("h", 1), /^ReplyError: WRONGTYPE/);
    assert.deepEqual(await redis.call("HEXPIRE", "h", 100, "FIELDS", 2, "user", "missing"), [1, -2]);
    assert.deepEqual(await redis.call("HTTL", "h", "FIELDS", 2, "missing", "count"), [-2, -1]);
  },

  async lists(redis) {
    assert.equal(await redis.rpush("l", "b", "c", "d"), 3);
    assert.equal(await redis.lpush("l", ["a"]), 4);
    assert.deepEqual(await redis.lrange("l", 0, -1), ["a", "b", "c", "d"]);
    assert.equal(await redis.lindex("l", -1), "d");
    assert.equal(await redis.lset("l", 1, "B"), "OK");
    assert.equal(await redis.linsert("l", "BEFORE", "c", "x"), 5);
    assert.equal(await redis.lpos("l", "c"), 3);
    assert.equal(await redis.lrem("l", 0, "x"), 1);
    assert.equal(await redis.lmove("l", "done", "LEFT", "RIGHT"), "a");
    assert.equal(await redis.rpoplpush("l", "done"), "d");
    assert.deepEqual(await redis.lrange("done", 0, -1), ["d", "a"]);
    assert.deepEqual(await redis.lmpop(2, "missing", "l", "LEFT", "COUNT", 5), ["l", ["B", "c"]]);
    assert.equal(await redis.lpop("l"), null);
    assert.equal(await redis.rpush("l", 3, 1, 2), 3);
    assert.deepEqual(await redis.sort("l", "DESC"), ["3", "2", "1"]);
    assert.equal(await redis.ltrim("l", 1, 1), "OK");
    assert.equal(await redis.llen("l"), 1);
  },

  // Four workers take what is pushed, each of them on a connection of its own: each job is taken once.
  async blocking(redis) {
    const taken = [];
    const work = async () => {
      const worker = connect();
      for (;;) {
        const [, job] = await worker.brpop("urgent", "jobs", 0);
        if (job === "end") break;
        taken.push(Number(job));
      }
      await worker.quit();
    };
    const workers = Array.from({ length: 4 }, work);
    for (let i = 0; i < 200; i++) await redis.lpush(i % 2 ? "urgent" : "jobs", i);
    for (let i = 0; i < 4; i++) await redis.lpush("jobs", "end");
    await Promise.all(workers);
    assert.deepEqual(taken.sort((a, b) => a - b), Array.from({ length: 200 }, (_, i) => i));
    assert.equal(await redis.exists("jobs", "urgent"), 0);
    assert.equal(await redis.blpop("empty", 0.01), null);
    await redis.rpush("a", 1, 2);
    assert.equal(await redis.blmove("a", "b", "RIGHT", "LEFT", 1), "2");
    assert.deepEqual(await redis.blpop("b", "a", 1), ["b", "2"]);
    assert.deepEqual(await redis.blmpop(1, 2, "b", "a", "LEFT", "COUNT", 5), ["a", ["1"]]);
  },

  async sets(redis) {
    const sorted = async (members) => (await members).sort();
    assert.equal(await redis.sadd("s", "a", "b", "c", "a"), 3);
    assert.equal(await redis.sadd("t", ["c", 2, 3]), 3);
    assert.equal(await redis.sismember("s", "b"), 1);
    assert.deepEqual(await redis.smismember("s", "b", "x"), [1, 0]);
    assert.deepEqual(await sorted(redis.smembers("s")), ["a", "b", "c"]);
    assert.deepEqual(await redis.sinter("s", "t"), ["c"]);
    assert.deepEqual(await sorted(redis.sunion("s", "t")), ["2", "3", "a", "b", "c"]);
    assert.deepEqual(await sorted(redis.sdiff("s", "t")), ["a", "b"]);
    assert.equal(await redis.sintercard(2, "s", "t"), 1);
    assert.equal(await redis.sunionstore("u", "s", "t"), 5);
    assert.equal(await redis.smove("s", "t", "a"), 1);
    assert.equal(await redis.srem("s", "b", "x"), 1);
    assert.deepEqual(await redis.srandmember("s", 5), ["c"]);
    assert.equal(await redis.spop("s"), "c");
    assert.equal(await redis.exists("s"), 0);
    assert.equal(await redis.scard("t"), 4);
    await redis.sadd("large", Array.from({ length: 1000 }, (_, i) => `m${i}`));
    const seen = new Set();
    for await (const page of redis.sscanStream("large", { count: 50 })) page.forEach((member) => seen.add(member));
    assert.equal(seen.size, 1000);
  },

  async sortedSets(redis) {
    assert.equal(await redis.zadd("z", 1, "a", 2.5, "b", 3, "c"), 3);
    assert.equal(await redis.zadd("z", "NX", 9, "a"), 0);
    assert.equal(await redis.zadd("z", "GT", "CH", 0, "c"), 0);
    assert.equal(await redis.zscore("z", "b"), "2.5");
    assert.equal(await redis.zscore("z", "x"), null);
    assert.deepEqual(await redis.zmscore("z", "a", "x"), ["1", null]);
    assert.equal(await redis.zrank("z", "c"), 2);
    assert.equal(await redis.zrevrank("z", "c"), 0);
    assert.deepEqual(await redis.zrange("z", 0, -1, "WITHSCORES"), ["a", "1", "b", "2.5", "c", "3"]);
    assert.deepEqual(await redis.zrangebyscore("z", "(1", "+inf", "LIMIT", 0, 1), ["b"]);
    assert.deepEqual(await redis.zrange("z", 0, 1, "REV"), ["c", "b"]);
    assert.equal(await redis.zcount("z", 2, "(3"), 1);
    assert.equal(await redis.zincrby("z", 1.5, "a"), "2.5");
    assert.equal(await redis.zadd("y", 10, "b"), 1);
    assert.deepEqual(
      await redis.zunion(2, "z", "y", "WEIGHTS", 2, 1, "WITHSCORES"),
      ["a", "5", "c", "6", "b", "15"],
    );
    assert.equal(await redis.zinterstore("i", 2, "z", "y", "AGGREGATE", "MAX"), 1);
    assert.equal(await redis.zscore("i", "b"), "10");
    assert.deepEqual(await redis.zpopmax("z"), ["c", "3"]);
    assert.deepEqual(await redis.bzpopmin("missing", "z", 1), ["z", "a", "2.5"]);
    assert.equal(await redis.zremrangebyscore("z", "-inf", "+inf"), 1);
    assert.equal(await redis.zadd("l", 0, "a", 0, "b", 0, "c"), 3);
    assert.deepEqual(await redis.zrangebylex("l", "[b", "+"), ["b", "c"]);
    assert.equal(await redis.zrem("l", "a", "x"), 1);
  },

  async streams(redis) {
    assert.equal(await redis.xadd("x", "1-1", "n", 1), "1-1");
    assert.equal(await redis.xadd("x", "1-2", "n", 2), "1-2");
    assert.equal(await redis.xadd("x", "MAXLEN", 3, "2-*", "n", 3), "2-0");
    await assert.rejects(redis.xadd("x", "1-1", "n", 1), /equal or smaller than the target stream top item/);
    const entries = [["1-1", ["n", "1"]], ["1-2", ["n", "2"]], ["2-0", ["n", "3"]]];
    assert.deepEqual(await redis.xrange("x", "-", "+"), entries);
    assert.deepEqual(await redis.xrevrange("x", "+", "-", "COUNT", 1), [entries[2]]);
    assert.deepEqual(await redis.xread("COUNT", 1, "STREAMS", "x", "1-1"), [["x", [entries[1]]]]);
    assert.equal(await redis.xread("BLOCK", 10, "STREAMS", "x", "$"), null);
    const other = connect();
    const awaited = other.xread("BLOCK", 0, "STREAMS", "x", "2-0");
    await redis.xadd("x", "3-0", "n", 4);
    assert.deepEqual(await awaited, [["x", [["3-0", ["n", "4"]]]]]);
    await other.quit();
    assert.equal(await redis.xdel("x", "1-2", "9-9"), 1);
    assert.equal(await redis.xtrim("x", "MAXLEN", 1), 2);
    assert.equal(await redis.xlen("x"), 1);
  },

  // Four consumers read what one adds, each entry by one of them; what one of them has not confirmed another claims.
  async groups(redis) {
    assert.equal(await redis.xgroup("CREATE", "x", "g", "$", "MKSTREAM"), "OK");
    const read = [];
    const consume = async (_, i) => {
      const consumer = connect();
      for (;;) {
        const [[, [[id, [, n]]]]] =
          await consumer.xreadgroup("GROUP", "g", `c${i}`, "COUNT", 1, "BLOCK", 0, "STREAMS", "x", ">");
        assert.equal(await consumer.xack("x", "g", id), 1);
        if (n === "end") break;
        read.push(Number(n));
      }
      await consumer.quit();
    };
    const consumers = Array.from({ length: 4 }, consume);
    for (let i = 0; i < 100; i++) await redis.xadd("x", "*", "n", i);
    for (let i = 0; i < 4; i++) await redis.xadd("x", "*", "n", "end");
    await Promise.all(consumers);
    assert.deepEqual(read.sort((a, b) => a - b), Array.from({ length: 100 }, (_, i) => i));
    assert.deepEqual(await redis.xpending("x", "g"), [0, null, null, null]);
    const id = await redis.xadd("x", "*", "n", "left");
    const left = [id, ["n", "left"]];
    assert.deepEqual(await redis.xreadgroup("GROUP", "g", "c0", "STREAMS", "x", ">"), [["x", [left]]]);
    assert.deepEqual(await redis.xpending("x", "g"), [1, id, id, [["c0", "1"]]]);
    assert.deepEqual(await redis.xautoclaim("x", "g", "c2", 0, "0"), ["0-0", [left], []]);
    assert.deepEqual(await redis.xclaim("x", "g", "c1", 0, id), [left]);
    assert.deepEqual(await redis.xpending("x", "g", "-", "+", 5, "c0"), []);
    const [info] = await redis.xinfo("GROUPS", "x");
    assert.deepEqual(info, [
      "name", "g", "consumers", 4, "pending", 1, "last-delivered-id", id, "entries-read", 105, "lag", 0,
    ]);
    assert.equal(await redis.xack("x", "g", id), 1);
    assert.equal(await redis.xgroup("DELCONSUMER", "x", "g", "c1"), 0);
    assert.equal(await redis.xgroup("DESTROY", "x", "g"), 1);
    await assert.rejects(redis.xreadgroup("GROUP", "g", "c0", "STREAMS", "x", ">"), /NOGROUP/);
  },

  async pipeline(redis) {
    const pipeline = redis.pipeline();
    for (let i = 0; i < 1000; i++) pipeline.set(`p${i}`, i).get(`p${i}`);
    const replies = await pipeline.exec();
    assert.equal(replies.length, 2000);
    replies.forEach(([error, reply], i) => {
      assert.equal(error, null);
      assert.equal(reply, i % 2 ? String((i - 1) / 2) : "OK");
    });
    const automatic = connect({ enableAutoPipelining: true });
    const values = await Promise.all(Array.from({ length: 100 }, (_, i) => automatic.get(`p${i}`)));
    assert.deepEqual(values, Array.from({ length: 100 }, (_, i) => String(i)));
    await automatic.quit();
  },

  async transaction(redis) {
    assert.deepEqual(await redis.multi().set("t", 41).incr("t").exec(), [[null, "OK"], [null, 42]]);
    const [, [error], [, last]] = await redis.multi().set("t", "x").incr("t").set("u", 1).exec();
    assert.match(error.message, /not an integer/);
    assert.equal(last, "OK");
    await redis.multi({ pipeline: false });
    assert.equal(await redis.set("v", 1), "QUEUED");
    assert.equal(await redis.discard(), "OK");
    assert.equal(await redis.exists("v"), 0);
    const refused = redis.multi().set("w", 1);
    refused.call("get");
    await assert.rejects(refused.exec(), /EXECABORT/);
  },

  async conflict(redis) {
    const other = connect();
    await redis.set("w", 1);
    await redis.watch("w");
    await other.set("w", 2);
    assert.equal(await redis.multi().set("w", 3).exec(), null);
    assert.equal(await redis.get("w"), "2");
    await redis.watch("w");
    assert.deepEqual(await redis.multi().set("w", 3).exec(), [[null, "OK"]]);
    await other.quit();
  },

  async subscriptions(redis) {
    const subscriber = connect();
    assert.equal(await subscriber.subscribe("news", "other"), 2);
    assert.equal(await subscriber.psubscribe("n*"), 3);
    const plain = [];
    const matched = [];
    const all = new Promise((resolve) => {
      const done = () => plain.length + matched.length === 200 && resolve();
      subscriber.on("message", (_, message) => (plain.push(message), done()));
      subscriber.on("pmessage", (_, channel, message) => (matched.push(message), done()));
    });
    for (let i = 0; i < 100; i++) assert.equal(await redis.publish("news", i), 2);
    await all;
    const expected = Array.from({ length: 100 }, (_, i) => String(i));
    assert.deepEqual(plain, expected);
    assert.deepEqual(matched, expected);
    assert.deepEqual(await subscriber.ping("hello"), ["pong", "hello"]);
    await subscriber.unsubscribe("news", "other");
    await subscriber.punsubscribe("n*");
    assert.equal(await subscriber.get("missing"), null);
    await subscriber.quit();
  },

  async databases(redis) {
    const other = connect({ db: 7, keyPrefix: "app:" });
    await other.set("d", 7);
    assert.equal(await redis.get("app:d"), null);
    await redis.select(7);
    assert.equal(await redis.get("app:d"), "7");
    await redis.select(0);
    await other.quit();
  },

  async errors(redis) {
    await redis.set("e", "text");
    await assert.rejects(redis.incr("e"), /^ReplyError: ERR value is not an integer or out of range$/);
    await assert.rejects(redis.call("nosuch"), /unknown command 'nosuch'/);
  },

  async server(redis) {
    assert.equal(await redis.ping(), "PONG");
    assert.equal(await redis.client("GETNAME"), "larder-smoke");
    assert.match(await redis.info("server"), /redis_version:\d/);
    assert.equal((await redis.command("INFO", "get"))[0][0], "get");
  },
};

async function main() {
  // It asks INFO whether the server is loading before it says that it is ready.
  const redis = connect({ connectionName: "larder-smoke" });
  for (const [name, check] of Object.entries(checks)) {
    await redis.flushall();
    await check(redis).catch((error) => {
      console.log(`${name}: ${error.stack}`);
      process.exit(1);
    });
    console.log(`${name}: ok`);
  }
  await redis.quit();
}

setTimeout(() => {
  console.log("no answer for a minute");
  process.exit(1);
}, 60000).unref();
main();
