"""kazoo's own elections on ZooKeeper, for the tests in which they stand in line with ours, and for the benchmark
beside ours.

    python3 peer.py ENDPOINTS stand SESSION_MILLIS
    python3 peer.py ENDPOINTS campaign|handover|many WARM_UP ROUNDS

`stand` says which session it has (`session HEX`), obeys the lines of its standard input, and says on its standard
output what happens. Times are nanoseconds of the machine's monotonic clock:

    campaign election PATH ID     ->  gained ID TIME, once it leads
    resign ID                     ->  resigned ID TIME, where TIME is before it has begun to let go

The others print the nanoseconds that each round took, in one line.
"""

import os
import sys
import threading
import time

from kazoo.client import KazooClient

SESSION_SECONDS = 30.0
# One word at a time: there is a thread per candidate.
saying = threading.Lock()


def main():
    endpoints, what = sys.argv[1:3]
    if what == "stand":
        stand(connect(endpoints, int(sys.argv[3]) / 1000))
    else:
        measure = {"campaign": campaigns, "handover": handovers, "many": many}[what]
        print("times", *measure(endpoints, *map(int, sys.argv[3:5])), flush=True)
    # kazoo's threads would go on.
    os._exit(0)


def connect(endpoints, seconds=SESSION_SECONDS):
    client = KazooClient(hosts=endpoints, timeout=seconds)
    client.start(timeout=60)
    return client


class Candidate:
    """A candidate that somebody else tells when to resign."""

    def __init__(self, client, path, name):
        self.name = name
        self.told = threading.Event()
        self.leads = threading.Event()
        self.election = client.Election(path, name)
        self.thread = threading.Thread(target=self.election.run, args=(self.lead,), daemon=True)
        self.thread.start()

    def lead(self):
        self.leads.set()
        say("gained", self.name)
        self.told.wait()
        say("resigned", self.name)

    def resign(self):
        self.told.set()
        if not self.leads.is_set():
            self.election.cancel()
            self.thread.join()
            if not self.leads.is_set():
                say("resigned", self.name)


def stand(client):
    print(f"session {client.client_id[0]:x}", flush=True)
    candidates = {}
    for line in sys.stdin:
        words = line.split()
        if words[0] == "campaign":
            candidates[words[3]] = Candidate(client, words[2], words[3])
        elif words[0] == "resign":
            candidates.pop(words[1]).resign()
        else:
            raise ValueError(line)


def say(what, name):
    with saying:
        print(what, name, time.monotonic_ns(), flush=True)


def campaigns(endpoints, warm_up, rounds):
    """Nobody else stands; the session is there."""
    client = connect(endpoints)
    times = []
    for number in range(warm_up + rounds):
        election = client.Election(f"/kazoo-campaign-{unique()}-{number}", "value")
        started = time.monotonic_ns()
        election.run(lambda: times.append(time.monotonic_ns() - started))
    return times[warm_up:]


def handovers(endpoints, warm_up, rounds):
    """From when the leader lets go to when the follower leads."""
    one, other = connect(endpoints), connect(endpoints)
    times = []
    for number in range(warm_up + rounds):
        path = f"/kazoo-handover-{unique()}-{number}"
        leads, resign = threading.Event(), threading.Event()
        began, ended = [], []

        def lead():
            leads.set()
            resign.wait()
            began.append(time.monotonic_ns())

        leader = threading.Thread(target=one.Election(path, "leader").run, args=(lead,))
        leader.start()
        leads.wait()
        follower = threading.Thread(
            target=other.Election(path, "follower").run, args=(lambda: ended.append(time.monotonic_ns()),)
        )
        follower.start()
        while len(one.get_children(path)) < 2:
            pass
        # Until it watches.
        time.sleep(0.02)
        resign.set()
        leader.join()
        follower.join()
        times.append(ended[0] - began[0])
    return times[warm_up:]


def many(endpoints, warm_up, elections):
    """So many elections on one session, until all are won."""
    client = connect(endpoints)
    won(client, f"{unique()}-warm", warm_up)
    return [won(client, unique(), elections)]


def won(client, run, elections):
    leading, resign = threading.Semaphore(0), threading.Event()

    def lead():
        leading.release()
        resign.wait()

    started = time.monotonic_ns()
    threads = []
    for number in range(elections):
        election = client.Election(f"/kazoo-many-{run}-{number}", "value")
        threads.append(threading.Thread(target=election.run, args=(lead,)))
        threads[-1].start()
    for _ in threads:
        leading.acquire()
    ended = time.monotonic_ns()
    resign.set()
    for thread in threads:
        thread.join()
    return ended - started


def unique():
    return f"{os.getpid():x}-{time.monotonic_ns():x}"


if __name__ == "__main__":
    main()
