// node-resque: queues of Resque in lists, jobs for later as those of Resque's scheduler in a sorted set and lists, workers and locks
// in strings; a worker takes a job by a script.
"use strict";

const { fork } = require("node:child_process");
const Redis = require("ioredis");
const { Plugins, Queue, Scheduler, Worker } = require("node-resque");
const { assert, run, sleep, until, url } = require("./checks");

const JOBS = 600;

const { hostname, port, pathname } = new URL(url);
const connection = { pkg: "ioredis", host: hostname, port: Number(port), database: Number(pathname.slice(1)) };
const store = new Redis(url);

let running = 0;
const jobs = {
  add: (a, b) => store.hincrby("sums", a + b, 1),
  note: (name) => store.rpush("order", name),
  clock: (name) => store.set(name, Date.now()),
  async failsTwice() {
    if ((await store.incr("tries")) < 3) throw new Error("not yet");
    await store.set("tried", "at last");
  },
  async fails() {
    await store.incr("failed");
    throw new Error("what was asked for");
  },
  async alone() {
    running += 1;
    assert.equal(running, 1);
    await sleep(300);
    running -= 1;
    await store.incr("alone");
  },
  slow: () => sleep(600000),
};
const plugins = {
  failsTwice: { plugins: [Plugins.Retry], pluginOptions: { Retry: { retryLimit: 3, retryDelay: 10 } } },
  alone: { plugins: [Plugins.JobLock], pluginOptions: { JobLock: { enqueueTimeout: 10 } } },
  unique: { plugins: [Plugins.QueueLock, Plugins.DelayQueueLock] },
};
const tasks = {};
for (const name of [...Object.keys(jobs), "unique"]) {
  tasks[name] = { perform: async (...words) => (jobs[name] ? jobs[name](...words) : true), ...plugins[name] };
}

function failed(error) {
  console.error(error);
  process.exit(1);
}

async function worker(name, queues) {
  const made = new Worker({ connection, queues, name, timeout: 10 }, tasks);
  made.on("error", failed);
  await made.connect();
  await made.start();
  return made;
}

async function scheduler(name) {
  const made = new Scheduler({ connection, name, timeout: 20, leaderLockTimeout: 60 }, tasks);
  made.on("error", failed);
  await made.connect();
  await made.start();
  return made;
}

// As a process of its own, which is killed while it has a job.
if (process.argv[2] === "slow") {
  worker("slow", ["slow"]);
  return;
}

const queue = new Queue({ connection }, tasks);
queue.on("error", failed);
const number = async (name) => Number(await store.get(name));

const checks = {
  async firstQueueFirst() {
    await queue.connect();
    for (const name of ["a", "b"]) await queue.enqueue("low", "note", [name]);
    for (const name of ["c", "d"]) await queue.enqueue("high", "note", [name]);
    assert.deepEqual((await queue.queues()).sort(), ["high", "low"]);
    const one = await worker("order", ["high", "low"]);
    await until(async () => (await store.llen("order")) === 4);
    assert.deepEqual(await store.lrange("order", 0, -1), ["c", "d", "a", "b"]);
    await one.end();
  },

  async jobsAndExactCounts() {
    const workers = await Promise.all(["one", "two", "three"].map((name) => worker(name, ["many"])));
    assert.deepEqual(Object.keys(await queue.workers()).sort(), ["one", "three", "two"]);
    const numbers = Array.from({ length: JOBS }, (_, n) => n);
    await Promise.all(numbers.map((n) => queue.enqueue("many", "add", [n, n])));
    await until(async () => Number((await queue.stats()).processed) === JOBS + 4);
    const sums = Object.fromEntries(numbers.map((n) => [2 * n, "1"]));
    assert.deepEqual(await store.hgetall("sums"), sums);
    assert.equal(await queue.length("many"), 0);
    await Promise.all(workers.map((one) => one.end()));
    assert.deepEqual(await queue.workers(), {});
  },

  async oneSchedulerLeads() {
    const [first, second] = [await scheduler("first"), await scheduler("second")];
    await until(async () => (await queue.leader()) !== null);
    const leader = await queue.leader();
    assert.deepEqual([first.leader, second.leader].filter(Boolean).length, 1);
    await (leader === "first" ? first : second).end();
    await until(async () => ((await queue.leader()) ?? leader) !== leader);
    await (leader === "first" ? second : first).end();
    assert.equal(await queue.leader(), null);
  },

  async jobsForLater() {
    const [leads, works] = [await scheduler("leads"), await worker("later", ["later"])];
    const at = Date.now() + 1500;
    await queue.enqueueAt(at, "later", "clock", ["later"]);
    await queue.enqueueIn(600000, "later", "clock", ["much later"]);
    await assert.rejects(queue.enqueueAt(at, "later", "clock", ["later"]), /already enqueued/);
    assert.equal((await queue.timestamps()).length, 2);
    await until(async () => await store.get("later"));
    // Times are kept, and compared with what it is then, in seconds, rounded.
    assert((await number("later")) >= at - 1000);
    assert.equal((await queue.scheduledAt("later", "clock", ["much later"])).length, 1);
    assert.equal((await queue.delDelayed("later", "clock", ["much later"])).length, 1);
    assert.deepEqual(await queue.allDelayed(), {});
    await Promise.all([leads.end(), works.end()]);
  },

  async retries() {
    const [leads, works] = [await scheduler("leads"), await worker("retries", ["retries"])];
    await queue.enqueue("retries", "failsTwice");
    await until(async () => await store.get("tried"));
    assert.equal(await number("tries"), 3);
    assert.equal(await queue.failedCount(), 0);
    await Promise.all([leads.end(), works.end()]);
  },

  async failedJobsAreKept() {
    const works = await worker("fails", ["fails"]);
    await queue.enqueue("fails", "fails");
    await until(async () => (await queue.failedCount()) === 1);
    const [kept] = await queue.failed(0, -1);
    assert.deepEqual([kept.payload.class, kept.error], ["fails", "what was asked for"]);
    await queue.retryAndRemoveFailed(kept);
    // It fails once more.
    await until(async () => (await queue.failedCount()) === 1 && (await number("failed")) === 2);
    assert.equal(await queue.removeFailed((await queue.failed(0, -1))[0]), 1);
    assert.equal(await queue.failedCount(), 0);
    await works.end();
  },

  async uniqueJobs() {
    assert.equal(await queue.enqueue("unique", "unique", [1]), true);
    assert.equal(await queue.enqueue("unique", "unique", [1]), false);
    assert.equal(await queue.enqueue("unique", "unique", [2]), true);
    const works = await worker("unique", ["unique"]);
    await until(async () => Object.keys(await queue.locks()).length === 0);
    assert.equal(await queue.enqueue("unique", "unique", [1]), true);
    await until(async () => Object.keys(await queue.locks()).length === 0);
    await works.end();
  },

  async oneOfAKindAtATime() {
    const leads = await scheduler("leads");
    const works = await Promise.all(["a", "b", "c"].map((name) => worker(name, ["alone"])));
    // A job that has to wait goes to those for later, of which two must not be the same.
    for (let n = 0; n < 2; n += 1) await queue.enqueue("alone", "alone");
    await until(async () => (await number("alone")) === 2);
    assert.equal(await queue.failedCount(), 0);
    await Promise.all([leads, ...works].map((one) => one.end()));
  },

  async queuesAreLookedThroughAndCleared() {
    for (let n = 0; n < 20; n += 1) await queue.enqueue("nobody", "note", [n % 10]);
    assert.deepEqual((await queue.queued("nobody", 3, 4)).map((job) => job.args), [[3], [4]]);
    assert.equal(await queue.del("nobody", "note", [7]), 2);
    assert.equal(await queue.delByFunction("nobody", "note", 0, 4), 5);
    // Each goes with those that are like it.
    assert.equal(await queue.length("nobody"), 8);
    await queue.delQueue("nobody");
    assert((await queue.queues()).every((name) => name !== "nobody"));
  },

  async jobsOfAKilledWorker() {
    const child = fork(__filename, ["slow"]);
    await queue.enqueue("slow", "slow", ["x"]);
    await until(async () => (await queue.allWorkingOn()).slow?.payload);
    child.kill("SIGKILL");
    const error = await queue.forceCleanWorker("slow");
    assert.deepEqual([error.queue, error.payload.class, error.payload.args], ["slow", "slow", ["x"]]);
    assert.deepEqual(await queue.workers(), {});
    assert.equal(await queue.failedCount(), 1);
  },
};

run(checks, () => queue.end());
