"""What is measured of another library's locks, in Python: how long it takes to get one, and to take one over.

A program that uses this is called with where its server is, what to measure, and how many rounds. It prints the
nanoseconds that each round took, in one line.
"""

import sys
import threading
import time


def main(measures):
    where, what, count = sys.argv[1:4]
    print("times", *measures[what](where, int(count)), flush=True)


def campaigns(lock, rounds):
    """Nobody else asks. `lock` makes the lock of a round."""
    times = []
    for number in range(rounds):
        asked = lock(number)
        started = time.monotonic_ns()
        assert asked.acquire(blocking=False)
        times.append(time.monotonic_ns() - started)
        asked.release()
    return times


def handovers(locks, rounds, seconds_until_it_waits):
    """From when the holder lets go to when the one who waits has it. `locks` makes the locks of both."""
    times = []
    for number in range(rounds):
        held, wanted = locks(number)
        assert held.acquire()
        ended = []
        waiting = threading.Thread(target=lambda: (wanted.acquire(), ended.append(time.monotonic_ns())))
        waiting.start()
        time.sleep(seconds_until_it_waits(number))
        started = time.monotonic_ns()
        held.release()
        waiting.join()
        times.append(ended[0] - started)
        wanted.release()
    return times
