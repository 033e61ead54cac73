"""pottery's Redlock on Redis, for the benchmark beside our elections. URL names one server, or several, with commas
between them.

    python3 peer.py URL campaign|handover|many COUNT
    python3 peer.py URL idle FOLLOWERS

The first three print the nanoseconds that each round took (`many`: that all took together), in one line. `idle` says
`ready` when one leads and the others wait, and goes on until its standard input ends.
"""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import lock_rounds
from pottery import Redlock
from redis import Redis

TTL_SECONDS = 15
# It does not renew by itself. This is when the other libraries renew.
RENEWED_BEFORE_END_SECONDS = 0.5


def main():
    if sys.argv[2] == "idle":
        idle(sys.argv[1], int(sys.argv[3]))
    else:
        lock_rounds.main({"campaign": campaigns, "handover": handovers, "many": many})
    # Threads may wait for ever.
    os._exit(0)


def lock(clients, name):
    return Redlock(key=name, masters=clients, auto_release_time=TTL_SECONDS, num_extensions=sys.maxsize)


def campaigns(url, rounds):
    clients = connect(url)
    return lock_rounds.campaigns(lambda number: lock(clients, unique("campaign", number)), rounds)


def handovers(url, rounds):
    both = connect(url), connect(url)
    return lock_rounds.handovers(
        lambda number: [lock(clients, unique("handover", number)) for clients in both],
        rounds,
        # Until it may look at any time: it does so every 0 to 200 ms.
        lambda number: 0.3 + 0.2 * (number + 0.5) / rounds,
    )


def many(url, count):
    """So many locks on one client, a few at a time, until all are held."""
    clients = connect(url)
    with ThreadPoolExecutor(16) as threads:
        locks = [lock(clients, unique("many", number)) for number in range(count)]
        started = time.monotonic_ns()
        assert all(threads.map(lambda asked: asked.acquire(), locks))
        ended = time.monotonic_ns()
        list(threads.map(lambda held: held.release(), locks))
    return [ended - started]


def idle(url, followers):
    name = unique("idle", followers)
    leader = lock(connect(url), name)
    assert leader.acquire()
    threading.Thread(target=renew, args=(leader,), daemon=True).start()
    for _ in range(followers):
        threading.Thread(target=lock(connect(url), name).acquire, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


def renew(leader):
    while True:
        time.sleep(TTL_SECONDS - RENEWED_BEFORE_END_SECONDS)
        leader.extend()


def connect(url):
    """A connection to each server that has been used, and knows the scripts."""
    clients = {Redis.from_url(server) for server in url.split(",")}
    first = lock(clients, unique("first", 0))
    assert first.acquire()
    first.release()
    return clients


def unique(what, number):
    return f"pottery-{what}-{os.getpid()}-{number}"


if __name__ == "__main__":
    main()
