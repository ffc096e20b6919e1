"""procrastinate: four workers in each process, with as many jobs at a time as their share of the clients.

A worker takes one job with a statement, and no two takes at a time: more workers take more. 1 and 16 in a process were slower,
and so were two processes. Completed jobs are deleted, which is faster than to keep them. Workers do not LISTEN, since they
always find a job. The inserts limit it: each fires NOTIFY twice.

The pool is the program's own, in two ways faster than procrastinate's. Its connections commit by themselves, so that no
statement needs a BEGIN and a COMMIT. It sends no empty query before each statement to check the connection.
"""

import asyncio
import logging

import procrastinate
import psycopg_pool
from harness import Counter, main

#: The body of a job. The byte of the other bodies would be sent as six characters of JSON.
TEXT = "7" * 100
#: The most workers of a process.
WORKERS = 4


def _pool(url: str, connections: int) -> psycopg_pool.AsyncConnectionPool:
    return psycopg_pool.AsyncConnectionPool(
        url, min_size=connections, max_size=connections, open=False, kwargs={"autocommit": True}
    )


def _app() -> procrastinate.App:
    return procrastinate.App(connector=procrastinate.PsycopgConnector())


async def prepare(url: str, waiting: int) -> None:
    """Install the tables and submit jobs."""
    app = _app()
    async with _pool(url, 1) as pool, app.open_async(pool):
        await app.schema_manager.apply_schema_async()
        deferrer = app.configure_task("bench", allow_unknown=True)
        await deferrer.batch_defer_async(*({"body": TEXT} for _ in range(waiting)))


async def work(url: str, clients: int, counter: Counter) -> None:
    """Run workers whose jobs submit the next ones."""
    app = _app()
    workers = min(WORKERS, clients)

    @app.task(name="bench")
    async def bench(body: str) -> None:
        await bench.defer_async(body=body)
        counter.add()

    async def worker(number: int) -> None:
        await app.run_worker_async(
            concurrency=(clients + number) // workers,
            install_signal_handlers=False,
            listen_notify=False,
            delete_jobs="always",
        )

    async with _pool(url, clients) as pool, app.open_async(pool):
        await asyncio.gather(*(worker(number) for number in range(workers)))


# A line of log for each step of each job would cost the peer time.
logging.disable(logging.CRITICAL)

if __name__ == "__main__":
    main(prepare, work)
