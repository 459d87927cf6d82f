// BullMQ: jobs in hashes, queues in lists and sorted sets, events in streams, every step of a job one script.
"use strict";

const { fork } = require("node:child_process");
const { FlowProducer, Queue, QueueEvents, UnrecoverableError, Worker } = require("bullmq");
const Redis = require("ioredis");
const { assert, run, sleep, until, url } = require("./checks");

const JOBS = 1000;

// Blocking commands are waited for as long as they take.
const connect = () => new Redis(url, { maxRetriesPerRequest: null });
const connection = connect();
// Many are closed with one connection.
connection.setMaxListeners(0);

// How soon a job whose worker is gone is given to another.
const briefly = { lockDuration: 1000, stalledInterval: 500 };

// As a process of its own, which is killed while it has a job.
if (process.argv[2] === "slow") {
  new Worker("stalled", () => sleep(600000), { connection: connect(), ...briefly });
  return;
}

const closed = [];
const queue = (name) => opened(new Queue(name, { connection }));
// From the first event on, whenever it begins to listen.
const events = (name) => opened(new QueueEvents(name, { connection: connect(), lastEventId: "0-0" }));

function worker(name, does, options) {
  const made = opened(new Worker(name, does, { connection: connect(), ...options }));
  made.on("error", (error) => {
    console.error(error);
    process.exit(1);
  });
  return made;
}

function opened(one) {
  closed.unshift(() => one.close());
  return one;
}

const checks = {
  async jobsAndResults() {
    const [adds, told] = [queue("add"), events("add")];
    await told.waitUntilReady();
    let ran = 0;
    const counts = [0, 0, 0];
    counts.forEach((_, at) => {
      worker("add", async ({ data }) => ((ran += 1), (counts[at] += 1), data.a + data.b), { concurrency: 10 });
    });
    const numbers = Array.from({ length: JOBS }, (_, n) => n);
    const jobs = await adds.addBulk(numbers.map((n) => ({ name: "add", data: { a: n, b: n } })));
    const results = await Promise.all(jobs.map((job) => job.waitUntilFinished(told, 60000)));
    assert.deepEqual(results, numbers.map((n) => 2 * n));
    assert.equal(ran, JOBS);
    assert(counts.every((count) => count > 0), `${counts}`);
    assert.deepEqual(await adds.getJobCounts("wait", "active", "completed", "failed"), {
      wait: 0,
      active: 0,
      completed: JOBS,
      failed: 0,
    });
  },

  async longJobs() {
    const [long, told] = [queue("long"), events("long")];
    await told.waitUntilReady();
    worker("long", async ({ data }) => data.text.length);
    const texts = [16000, 16400, 100000, 1000000].map((length) => "x".repeat(length));
    const jobs = await long.addBulk(texts.map((text) => ({ name: "long", data: { text } })));
    const lengths = await Promise.all(jobs.map((job) => job.waitUntilFinished(told, 60000)));
    assert.deepEqual(lengths, texts.map((text) => text.length));
    const kept = await Promise.all(jobs.map((job) => long.getJob(job.id)));
    assert(kept.every((job, at) => job.data.text === texts[at]));
  },

  async longResults() {
    const [long, told] = [queue("long-results"), events("long-results")];
    await told.waitUntilReady();
    worker("long-results", async ({ data }) => "y".repeat(data.length));
    const texts = [16000, 16400, 100000, 1000000].map((length) => "y".repeat(length));
    const jobs = await long.addBulk(texts.map(({ length }) => ({ name: "long", data: { length } })));
    const results = await Promise.all(jobs.map((job) => job.waitUntilFinished(told, 60000)));
    assert(results.every((result, at) => result === texts[at]));
    const kept = await Promise.all(jobs.map((job) => long.getJob(job.id)));
    assert(kept.every((job, at) => job.returnvalue === texts[at]));
  },

  async eventsOfAJobInTheirOrder() {
    const [one, told] = [queue("events"), events("events")];
    await told.waitUntilReady();
    const seen = [];
    for (const event of ["added", "waiting", "active", "progress", "completed"]) told.on(event, () => seen.push(event));
    worker("events", (job) => job.updateProgress(50));
    const job = await one.add("one", {});
    await job.waitUntilFinished(told, 30000);
    await until(() => seen.length === 5);
    assert.deepEqual(seen, ["added", "waiting", "active", "progress", "completed"]);
    await one.trimEvents(2);
    // As many at most as it takes to drop whole nodes of the stream.
    assert((await connection.xlen("bull:events:events")) <= 100);
  },

  async priorities() {
    const ordered = queue("priorities");
    for (const priority of [5, 1, 4, 2, 3]) await ordered.add("one", { priority }, { priority });
    await ordered.add("one", { priority: 0 });
    assert.deepEqual(await ordered.getCountsPerPriority([0, 1, 5]), { 0: 1, 1: 1, 5: 1 });
    const order = [];
    worker("priorities", async (job) => order.push(job.data.priority), { concurrency: 1 });
    await until(() => order.length === 6);
    assert.deepEqual(order, [0, 1, 2, 3, 4, 5]);
  },

  async firstInAndLastInFirstOut() {
    const lifo = queue("lifo");
    for (const n of [1, 2, 3]) await lifo.add("one", { n }, { lifo: n === 3 });
    const order = [];
    worker("lifo", async (job) => order.push(job.data.n));
    await until(() => order.length === 3);
    assert.deepEqual(order, [3, 1, 2]);
  },

  async retriesWithBackoff() {
    const [retried, told] = [queue("retries"), events("retries")];
    let tries = 0;
    worker("retries", async ({ name }) => {
      if (name === "never") throw new UnrecoverableError("what was asked for");
      if (++tries < 3) throw new Error("not yet");
      return "at last";
    });
    const job = await retried.add("one", {}, { attempts: 5, backoff: { type: "exponential", delay: 50 } });
    assert.equal(await job.waitUntilFinished(told, 30000), "at last");
    assert.equal(tries, 3);
    const never = await retried.add("never", {}, { attempts: 5 });
    await assert.rejects(never.waitUntilFinished(told, 30000), /what was asked for/);
    assert.equal((await retried.getFailed()).length, 1);
    assert.equal((await retried.getJob(never.id)).attemptsMade, 1);
  },

  async jobsForLater() {
    const [later, told] = [queue("later"), events("later")];
    worker("later", async () => Date.now());
    const began = Date.now();
    const job = await later.add("one", {}, { delay: 1000 });
    assert.equal(await job.getState(), "delayed");
    assert((await job.waitUntilFinished(told, 30000)) >= began + 1000);
    const moved = await later.add("one", {}, { delay: 600000 });
    await moved.promote();
    await moved.waitUntilFinished(told, 30000);
  },

  async jobSchedulers() {
    const every = queue("every");
    let ran = 0;
    worker("every", async () => (ran += 1));
    await every.upsertJobScheduler("often", { every: 200 }, { name: "one" });
    await until(() => ran >= 4);
    assert.equal(await every.getJobSchedulersCount(), 1);
    assert.equal(await every.removeJobScheduler("often"), true);
    assert.equal(await every.getJobSchedulersCount(), 0);
  },

  async parentsWaitForTheirChildren() {
    const told = events("parent");
    await told.waitUntilReady();
    worker("child", async ({ data }) => data.n * data.n);
    worker("parent", async (job) => Object.values(await job.getChildrenValues()).reduce((a, b) => a + b, 0));
    const children = Array.from({ length: 20 }, (_, n) => ({ name: "child", queueName: "child", data: { n } }));
    const flow = opened(new FlowProducer({ connection }));
    const { job } = await flow.add({ name: "parent", queueName: "parent", children });
    assert.equal(await job.waitUntilFinished(told, 30000), 2470);
    queue("child");
    queue("parent");
  },

  async oneOfAKind() {
    const kinds = queue("kinds");
    const first = await kinds.add("one", {}, { deduplication: { id: "kind", ttl: 60000 } });
    const second = await kinds.add("one", {}, { deduplication: { id: "kind", ttl: 60000 } });
    assert.equal(second.id, first.id);
    await kinds.add("one", { n: 1 }, { jobId: "mine" });
    await kinds.add("one", { n: 2 }, { jobId: "mine" });
    assert.equal((await kinds.getJob("mine")).data.n, 1);
    assert.equal(await kinds.getWaitingCount(), 2);
  },

  async limitsPerTime() {
    const limited = queue("limited");
    const times = [];
    worker("limited", async () => times.push(Date.now()), { concurrency: 10, limiter: { max: 5, duration: 1000 } });
    await limited.addBulk(Array.from({ length: 13 }, () => ({ name: "one", data: {} })));
    await until(() => times.length === 13);
    // Of six neighbours the last is of another window, which begins a duration after the first of that before it.
    for (let at = 5; at < 13; at += 5) assert(times[at] - times[at - 5] >= 950, `${times.map((time) => time - times[0])}`);
  },

  async concurrencyOfAllWorkers() {
    const few = queue("few");
    await few.setGlobalConcurrency(2);
    let [now, most, ran] = [0, 0, 0];
    const does = async () => {
      most = Math.max(most, ++now);
      await sleep(10);
      now -= 1;
      ran += 1;
    };
    for (let n = 0; n < 3; n += 1) worker("few", does, { concurrency: 5 });
    await few.addBulk(Array.from({ length: 40 }, () => ({ name: "one", data: {} })));
    await until(() => ran === 40);
    assert.equal(most, 2);
  },

  async pauseAndResume() {
    const paused = queue("paused");
    let ran = 0;
    worker("paused", async () => (ran += 1));
    await paused.pause();
    await paused.add("one", {});
    await sleep(300);
    assert.deepEqual([ran, await paused.isPaused()], [0, true]);
    await paused.resume();
    await until(() => ran === 1);
  },

  async jobsOfAKilledWorkerAreGivenAgain() {
    const stalled = queue("stalled");
    const told = events("stalled");
    await told.waitUntilReady();
    const child = fork(__filename, ["slow"]);
    const job = await stalled.add("one", {});
    await until(async () => (await job.getState()) === "active");
    child.kill("SIGKILL");
    worker("stalled", async () => "again", briefly);
    assert.equal(await job.waitUntilFinished(told, 30000), "again");
    assert.equal((await stalled.getJob(job.id)).stalledCounter, 1);
  },

  async cleaningAndRemoving() {
    const adds = queue("add");
    await (await adds.add("one", { a: 1, b: 1 }, { delay: 600000 })).remove();
    assert.equal((await adds.clean(0, JOBS, "completed")).length, JOBS);
    assert.equal(await adds.getCompletedCount(), 0);
    const logged = queue("logged");
    const job = await logged.add("one", {});
    for (const row of ["a", "b", "c"]) await job.log(row);
    assert.deepEqual(await logged.getJobLogs(job.id), { logs: ["a", "b", "c"], count: 3 });
    await logged.drain();
    await logged.obliterate();
    assert.deepEqual(await connection.keys("bull:logged:*"), []);
  },
};

run(checks, async () => {
  for (const close of closed) await close();
});
