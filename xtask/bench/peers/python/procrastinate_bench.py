"""procrastinate: a worker in each process, with as many jobs at a time as its share of the clients.

A worker takes one job with a statement, and no two takes at a time: more processes take more. Completed jobs are deleted, which
is faster than to keep them. Workers do not LISTEN, since they always find a job. The inserts limit it: each fires NOTIFY twice.
"""

import logging

import procrastinate
from harness import BODY, Counter, main

TEXT = BODY.decode()


def _app(url: str, connections: int) -> procrastinate.App:
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=connections, max_size=connections)
    return procrastinate.App(connector=connector)


async def prepare(url: str, waiting: int) -> None:
    """Install the tables and submit jobs."""
    app = _app(url, 1)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        deferrer = app.configure_task("bench", allow_unknown=True)
        await deferrer.batch_defer_async(*({"body": TEXT} for _ in range(waiting)))


async def work(url: str, clients: int, counter: Counter) -> None:
    """Run a worker whose jobs submit the next ones."""
    app = _app(url, clients)

    @app.task(name="bench")
    async def bench(body: str) -> None:
        await bench.defer_async(body=body)
        counter.add()

    async with app.open_async():
        await app.run_worker_async(
            concurrency=clients, install_signal_handlers=False, listen_notify=False, delete_jobs="always"
        )


# A line of log for each step of each job would cost the peer time.
logging.disable(logging.CRITICAL)

if __name__ == "__main__":
    main(prepare, work)
