// What the programs beside it share: checks that are told one by one.
"use strict";

const assert = require("node:assert/strict");

const url = process.env.REDIS_URL || "redis://127.0.0.1:6379/0";

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/// Waits until it holds.
async function until(holds, seconds = 60) {
  const end = Date.now() + seconds * 1000;
  while (!(await holds())) {
    assert(Date.now() < end, "it does not come to hold");
    await sleep(20);
  }
}

/// Runs each and tells that it passed; an error ends the program.
async function run(checks, end) {
  for (const [name, check] of Object.entries(checks)) {
    await check();
    // `jobsForLater` is told as `jobs for later`.
    console.log(`${name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)}: ok`);
  }
  await end();
  process.exit(0);
}

process.on("unhandledRejection", (error) => {
  console.error(error);
  process.exit(1);
});

module.exports = { assert, run, sleep, until, url };
