"""Measure a peer: start processes of workers together, let them warm up, and count the jobs that they complete.

Each job submits the next one as its work. So each worker submits, takes and completes one job after the other, as a client of
Leasehold's row does. The number of jobs that wait stays the same.
"""

import argparse
import asyncio
import json
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import uvloop

#: The bytes of a job's body, as many as those of Leasehold's requests have.
BODY = b"\7" * 100
#: The time within which the processes must run.
RUNNING_WITHIN_SECONDS = 60.0
#: The time that the processes have to connect, before the warm-up.
STARTUP_SECONDS = 3.0
#: The jobs that wait for each worker. A worker of an empty queue would wait for a poll.
WAITING_PER_CLIENT = 16


@dataclass
class Counter:
    """Counts the jobs that are completed within the measurement."""

    start: float
    end: float
    count: int = 0

    def add(self) -> None:
        """Count a job that is completed now."""
        if self.start <= time.monotonic() < self.end:
            self.count += 1


#: Installs the peer's tables in the database at the URL, and submits this number of jobs.
Prepare = Callable[[str, int], Awaitable[None]]
#: Runs this number of workers in the process. It returns only by a failure.
Work = Callable[[str, int, Counter], Awaitable[None]]
#: One by which a process tells that it runs, one for the start and the end of the measurement, and one for its count.
Queues = tuple["multiprocessing.Queue[bool]", "multiprocessing.Queue[tuple[float, float]]", "multiprocessing.Queue[int]"]


async def _work_until_end(work: Work, url: str, clients: int, counter: Counter) -> None:
    working = asyncio.create_task(work(url, clients, counter))
    done, _ = await asyncio.wait({working}, timeout=counter.end - time.monotonic())
    if done:
        await working
        raise RuntimeError("the workers have ended early")


def _child(work: Work, url: str, clients: int, queues: Queues) -> None:
    ready, times, counts = queues
    ready.put(True)
    counter = Counter(*times.get())
    # The loop is not closed: a graceful end takes the peers seconds, and their database is dropped anyway.
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(_work_until_end(work, url, clients, counter))
    counts.put(counter.count)
    counts.close()
    counts.join_thread()


def main(prepare: Prepare, work: Work) -> None:
    """Measure a peer with the command line's arguments, and print its jobs in a second as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    for name in ("clients", "processes", "warm-up-seconds", "seconds"):
        parser.add_argument(f"--{name}", required=True, type=int)
    arguments = parser.parse_args()
    uvloop.run(prepare(arguments.url, arguments.clients * WAITING_PER_CLIENT))

    spawn = multiprocessing.get_context("spawn")
    queues = ready, times, counts = spawn.Queue(), spawn.Queue(), spawn.Queue()
    shares = [(arguments.clients + number) // arguments.processes for number in range(arguments.processes)]
    children = [spawn.Process(target=_child, args=(work, arguments.url, share, queues), daemon=True) for share in shares]
    for child in children:
        child.start()
    # On a busy machine, a process needs seconds until it has imported its packages. They are not measured.
    for _ in children:
        ready.get(timeout=RUNNING_WITHIN_SECONDS)
    start = time.monotonic() + STARTUP_SECONDS + arguments.warm_up_seconds
    end = start + arguments.seconds
    for _ in children:
        times.put((start, end))
    # A process that fails sends no count, so that the time runs out.
    total = sum(counts.get(timeout=end - time.monotonic() + 30) for _ in children)
    for child in children:
        child.kill()
    print(json.dumps({"rate": total / arguments.seconds}))
