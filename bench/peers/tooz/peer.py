"""tooz's locks on PostgreSQL, for the benchmark beside our elections.

    python3 peer.py HOST:PORT campaign|handover ROUNDS

Prints the nanoseconds that each round took, in one line.

    python3 peer.py HOST:PORT idle FOLLOWERS

Holds a lock that so many wait for, says that it is ready, and goes on until it is ended.
"""

import os
import threading
import time

import lock_rounds
from tooz import coordination


def connect(endpoint):
    coordinator = coordination.get_coordinator(f"postgresql://postgres@{endpoint}?dbname=postgres", b"member")
    coordinator.start()
    return coordinator


def lock(coordinator, what, number):
    return coordinator.get_lock(f"{what}-{os.getpid()}-{number}".encode())


def campaigns(endpoint, rounds):
    coordinator = connect(endpoint)
    return lock_rounds.campaigns(lambda number: lock(coordinator, "campaign", number), rounds)


def handovers(endpoint, rounds):
    both = connect(endpoint), connect(endpoint)
    return lock_rounds.handovers(
        lambda number: [lock(coordinator, "handover", number) for coordinator in both], rounds, lambda number: 0.02
    )


def idle(endpoint, followers):
    # A lock that nobody refers to any more is released.
    held = lock(connect(endpoint), "idle", 0)
    assert held.acquire()
    for _ in range(followers):
        waiting = lock(connect(endpoint), "idle", 0)
        threading.Thread(target=waiting.acquire, daemon=True).start()
    print("ready", flush=True)
    time.sleep(3600)
    return []


if __name__ == "__main__":
    lock_rounds.main({"campaign": campaigns, "handover": handovers, "idle": idle})
