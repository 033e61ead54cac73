"""tooz's locks on PostgreSQL, for the benchmark beside our elections.

    python3 peer.py HOST:PORT campaign|handover ROUNDS

Prints the nanoseconds that each round took, in one line.
"""

import os
import sys
import threading
import time

from tooz import coordination


def main():
    endpoint, what, rounds = sys.argv[1:4]
    measure = {"campaign": campaigns, "handover": handovers}[what]
    print("times", *measure(endpoint, int(rounds)), flush=True)


def connect(endpoint):
    coordinator = coordination.get_coordinator(f"postgresql://postgres@{endpoint}?dbname=postgres", b"member")
    coordinator.start()
    return coordinator


def campaigns(endpoint, rounds):
    """Nobody else asks."""
    coordinator = connect(endpoint)
    times = []
    for number in range(rounds):
        lock = coordinator.get_lock(name("campaign", number))
        started = time.monotonic_ns()
        assert lock.acquire(blocking=False)
        times.append(time.monotonic_ns() - started)
        lock.release()
    return times


def handovers(endpoint, rounds):
    """From when the holder lets go to when the one who waits has it."""
    one, other = connect(endpoint), connect(endpoint)
    times = []
    for number in range(rounds):
        held, wanted = (coordinator.get_lock(name("handover", number)) for coordinator in (one, other))
        assert held.acquire()
        ended = []
        waiting = threading.Thread(target=lambda: (wanted.acquire(), ended.append(time.monotonic_ns())))
        waiting.start()
        # Until it waits.
        time.sleep(0.02)
        started = time.monotonic_ns()
        held.release()
        waiting.join()
        times.append(ended[0] - started)
        wanted.release()
    return times


def name(what, number):
    return f"{what}-{os.getpid()}-{number}".encode()


if __name__ == "__main__":
    main()
