// @sesamecare-oss/redlock on Redis, for the benchmark beside our elections. URL names one server, or several, with commas
// between them.
//
//     node peer.js URL campaign|handover|many COUNT
//     node peer.js URL idle FOLLOWERS
//
// The first three print the nanoseconds that each round took (`many`: that all took together), in one line. `idle` says
// `ready` when one leads and the others wait, and goes on until its standard input ends.

const { ExecutionError, Redlock } = require('@sesamecare-oss/redlock');
const { Redis } = require('ioredis');

const TTL_MILLIS = 15000;

async function main() {
  const [url, what, count] = process.argv.slice(2);
  if (what === 'idle') {
    await idle(url, Number(count));
  } else {
    const times = await { campaign: campaigns, handover: handovers, many }[what](url, Number(count));
    console.log('times', times.join(' '));
  }
  // Those that wait would go on.
  process.exit(0);
}

/** Nobody else asks; the connection is there. */
async function campaigns(url, rounds) {
  const redlock = await connect(url);
  const times = [];
  for (let number = 0; number < rounds; number++) {
    const name = unique('campaign', number);
    const started = process.hrtime.bigint();
    const lock = await redlock.acquire([name], TTL_MILLIS);
    times.push(process.hrtime.bigint() - started);
    await lock.release();
  }
  return times;
}

/** From when the holder lets go to when the one who waits has it. */
async function handovers(url, rounds) {
  const [one, other] = [await connect(url), await connect(url)];
  const times = [];
  for (let number = 0; number < rounds; number++) {
    const name = unique('handover', number);
    const held = await one.acquire([name], TTL_MILLIS);
    const waiting = wait(other, name).then((lock) => [lock, process.hrtime.bigint()]);
    // Until it may look at any time: it does so every 100 to 300 ms.
    await pause(300 + (200 * (number + 0.5)) / rounds);
    const started = process.hrtime.bigint();
    await held.release();
    const [lock, ended] = await waiting;
    times.push(ended - started);
    await lock.release();
  }
  return times;
}

/** So many locks on one connection, all asked for at once, until all are held. */
async function many(url, count) {
  const redlock = await connect(url);
  const names = Array.from({ length: count }, (_, number) => unique('many', number));
  const started = process.hrtime.bigint();
  const locks = await Promise.all(names.map((name) => redlock.acquire([name], TTL_MILLIS)));
  const ended = process.hrtime.bigint();
  await Promise.all(locks.map((lock) => lock.release()));
  return [ended - started];
}

async function idle(url, followers) {
  const stop = new Promise((resolve) => process.stdin.on('end', resolve).resume());
  const [leader, name] = [await connect(url), unique('idle', followers)];
  await new Promise((leads) => leader.using([name], TTL_MILLIS, () => (leads(), new Promise(() => {}))));
  for (let number = 0; number < followers; number++) {
    wait(await connect(url), name);
  }
  console.log('ready');
  await stop;
}

/** It gives up after ten looks, and begins again. */
async function wait(redlock, name) {
  for (;;) {
    try {
      return await redlock.acquire([name], TTL_MILLIS);
    } catch (error) {
      if (!(error instanceof ExecutionError)) throw error;
    }
  }
}

/** A connection to each server that has been used, and knows the scripts. */
async function connect(url) {
  const redlock = new Redlock(url.split(',').map((server) => new Redis(server)));
  await (await redlock.acquire([unique('first', 0)], TTL_MILLIS)).release();
  return redlock;
}

function pause(millis) {
  return new Promise((resolve) => setTimeout(resolve, millis));
}

function unique(what, number) {
  return `redlock-${what}-${process.pid}-${number}`;
}

main();
