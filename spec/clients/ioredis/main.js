// Talks to a cache server as programs that use ioredis do, and says of each kind of call whether it did
// what it should: a line "name: ok", or the error and exit 1.
"use strict";

const assert = require("node:assert/strict");
const Redis = require("ioredis");

const port = Number(process.argv[2]);
const connect = (options) => new Redis({ port, host: "127.0.0.1", ...options });

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
