// node-redlock: locks on one server or a majority of several, each taken, kept longer and let go by a script.
"use strict";

const Redis = require("ioredis");
const Redlock = require("redlock");
const { assert, run, sleep, url } = require("./checks");

const HOLDERS = 16;
const ROUNDS = 25;

const store = new Redis(url);
const clients = [store];

function connect(database = 0) {
  const client = new Redis(url.replace(/\d+$/, database));
  clients.push(client);
  return client;
}

const patient = { retryCount: -1, retryDelay: 3, retryJitter: 3 };
const once = { retryCount: 0 };

/// Adds one in two steps, so that two at once are seen: one of their additions is lost.
async function addUnguarded(client, key) {
  const number = Number(await client.get(key));
  await sleep(1);
  await client.set(key, number + 1);
}

const checks = {
  async oneHolderAtATime() {
    const holder = async () => {
      const client = connect();
      const locks = new Redlock([client], patient);
      for (let round = 0; round < ROUNDS; round += 1) {
        const lock = await locks.lock("lock", 30000);
        await addUnguarded(client, "guarded");
        await lock.unlock();
      }
    };
    await Promise.all(Array.from({ length: HOLDERS }, holder));
    assert.equal(await store.get("guarded"), String(HOLDERS * ROUNDS));
    assert.equal(await store.exists("lock"), 0);
  },

  async aHeldLockIsRefused() {
    const locks = new Redlock([store], once);
    const lock = await locks.lock("held", 30000);
    await assert.rejects(locks.lock("held", 30000), { name: "LockError" });
    assert.equal(await store.get("held"), lock.value);
    await lock.unlock();
    await (await locks.lock("held", 30000)).unlock();
  },

  async itIsKeptLongerByItsHolderAlone() {
    const locks = new Redlock([store], once);
    let lock = await locks.lock("longer", 500);
    for (let n = 0; n < 4; n += 1) {
      await sleep(300);
      lock = await lock.extend(500);
    }
    await store.set("longer", "another's");
    await assert.rejects(lock.extend(500), { name: "LockError" });
    assert.equal(await store.get("longer"), "another's");
  },

  async itExpires() {
    const lock = await new Redlock([store], once).lock("expires", 100);
    const next = await new Redlock([store], patient).lock("expires", 30000);
    await assert.rejects(lock.unlock(), { name: "LockError" });
    await next.unlock();
  },

  async severalKeysAtOnce() {
    const locks = new Redlock([store], once);
    const both = await locks.lock(["one", "two"], 30000);
    await assert.rejects(locks.lock(["two", "three"], 30000), { name: "LockError" });
    assert.equal(await store.exists("three"), 0);
    await both.unlock();
    await (await locks.lock(["two", "three"], 30000)).unlock();
  },

  async aMajorityOfThree() {
    // Databases in the place of servers.
    const three = [1, 2, 3].map(connect);
    const locks = new Redlock(three, once);
    await three[0].set("quorum", "another's");
    await (await locks.lock("quorum", 30000)).unlock();
    await three[1].set("quorum", "another's");
    await assert.rejects(locks.lock("quorum", 30000), { name: "LockError" });
    assert.deepEqual(await Promise.all(three.map((client) => client.get("quorum"))), ["another's", "another's", null]);
  },

  async scriptsThatWereFlushedAreSentAgain() {
    const locks = new Redlock([store], once);
    const lock = await locks.lock("flushed", 30000);
    await store.script("FLUSH");
    await lock.unlock();
  },
};

run(checks, () => Promise.all(clients.map((client) => client.quit())));
