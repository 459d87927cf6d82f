// rate-limit-redis: express-rate-limit's counters, each hit one script, through ioredis and through node-redis.
"use strict";

const express = require("express");
const { rateLimit } = require("express-rate-limit");
const Redis = require("ioredis");
const { RedisStore } = require("rate-limit-redis");
const { createClient } = require("redis");
const { assert, run, sleep, url } = require("./checks");

const ioredis = new Redis(url);
const nodeRedis = createClient({ url });
const servers = [];

/// How requests are sent, and what the keys begin with.
const clients = [
  ["io:", (...words) => ioredis.call(...words)],
  ["node:", (...words) => nodeRedis.sendCommand(words)],
];

/// A site that answers so many requests of each user per time.
async function site(prefix, sendCommand, limit, windowMs) {
  const app = express();
  const store = new RedisStore({ sendCommand, prefix });
  const keyGenerator = (request) => request.query.user;
  app.use(rateLimit({ windowMs, limit, store, keyGenerator, standardHeaders: "draft-7", legacyHeaders: false }));
  app.get("/", (_, response) => response.send("here"));
  const server = await new Promise((resolve) => {
    const listening = app.listen(0, "127.0.0.1", () => resolve(listening));
  });
  servers.push(server);
  const ask = (user) => fetch(`http://127.0.0.1:${server.address().port}/?user=${user}`);
  return { ask, store };
}

const count = (replies, status) => replies.filter((reply) => reply.status === status).length;

const checks = {
  async asManyAsThereMayBe() {
    if (!nodeRedis.isOpen) await nodeRedis.connect();
    for (const [prefix, send] of clients) {
      const { ask } = await site(prefix, send, 5, 600000);
      for (let n = 1; n <= 7; n += 1) {
        const reply = await ask("a");
        assert.equal(reply.status, n <= 5 ? 200 : 429);
        assert.match(reply.headers.get("ratelimit"), new RegExp(`^limit=5, remaining=${Math.max(5 - n, 0)}, reset=600$`));
      }
      assert.equal((await ask("b")).status, 200);
    }
  },

  async exactAmongManySites() {
    for (const [prefix, send] of clients) {
      const sites = await Promise.all([1, 2, 3].map(() => site(`many:${prefix}`, send, 100, 600000)));
      const replies = await Promise.all(Array.from({ length: 300 }, (_, n) => sites[n % 3].ask("many")));
      assert.deepEqual([count(replies, 200), count(replies, 429)], [100, 200]);
      assert.equal(await ioredis.get(`many:${prefix}many`), "300");
    }
  },

  async theWindowEnds() {
    for (const [prefix, send] of clients) {
      const { ask } = await site(`ends:${prefix}`, send, 1, 1000);
      const began = Date.now();
      assert.equal((await ask("a")).status, 200);
      assert.equal((await ask("a")).status, 429);
      while ((await ask("a")).status === 429) await sleep(20);
      assert(Date.now() - began >= 1000);
    }
  },

  async hitsAreTakenBackAndForgotten() {
    for (const [prefix, send] of clients) {
      const { store } = await site(`back:${prefix}`, send, 5, 600000);
      await store.increment("a");
      assert.equal((await store.increment("a")).totalHits, 2);
      await store.decrement("a");
      const { totalHits, resetTime } = await store.get("a");
      assert.equal(totalHits, 1);
      assert(resetTime - Date.now() > 590000 && resetTime - Date.now() <= 600000);
      await store.resetKey("a");
      assert.equal(await ioredis.exists(`back:${prefix}a`), 0);
      assert.equal((await store.increment("a")).totalHits, 1);
    }
  },

  async scriptsThatWereFlushedAreLoadedAgain() {
    for (const [prefix, send] of clients) {
      const { ask } = await site(`flushed:${prefix}`, send, 5, 600000);
      await ask("a");
      await ioredis.script("FLUSH");
      assert.equal((await ask("a")).status, 200);
      assert.equal(await ioredis.get(`flushed:${prefix}a`), "2");
    }
  },
};

run(checks, async () => {
  servers.forEach((server) => server.close());
  await Promise.all([ioredis.quit(), nodeRedis.close()]);
});
