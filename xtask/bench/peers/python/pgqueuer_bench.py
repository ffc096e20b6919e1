"""pgqueuer: a manager in each process, with a pool of as many connections as workers.

The manager takes up to 50 jobs with a statement, and also settles them in batches: this is the only way that it has. Its tables
are the durable ones, which are its default. The inserts limit it: each fires a NOTIFY, and PostgreSQL holds a lock of the whole
cluster from there to the end of the COMMIT. A pool of the manager's own, its settings of autovacuum, and one, three or four
processes were not faster.
"""

import asyncpg
from harness import BODY, Counter, main
from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

#: The most jobs of a take. 10, 16, 100 and 200 were slower.
BATCH = 50


async def prepare(url: str, waiting: int) -> None:
    """Install the tables and submit jobs."""
    async with asyncpg.create_pool(url, min_size=1, max_size=2) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        await queries.enqueue(["bench"] * waiting, [BODY] * waiting, [0] * waiting)


async def work(url: str, clients: int, counter: Counter) -> None:
    """Run a manager whose jobs submit the next ones."""
    pool = await asyncpg.create_pool(url, min_size=clients, max_size=clients)
    queries = Queries(AsyncpgPoolDriver(pool))
    manager = QueueManager(queries)

    @manager.entrypoint("bench")
    async def bench(_: Job) -> None:
        await queries.enqueue("bench", BODY)
        counter.add()

    # Without `max_concurrent_tasks` the statement of a take is cheaper. The pool bounds what runs at a time.
    await manager.run(batch_size=BATCH)


if __name__ == "__main__":
    main(prepare, work)
