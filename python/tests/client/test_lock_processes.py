"""Tests of locks that several processes want: processes that are stopped, forked, interrupted, busy, or end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.claims_server import ClaimsServer
from support.locks import LONG, PATIENT, STEADY, ended, line, program, tell
from support.waiting import wait_for

from leasehold.client import Client
from leasehold.locks import GrantEnd, LockState


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url) as client:
        yield client


# Each round reads the file, gives the others time to read it too, and writes it.
FIGHT = """
import pathlib, time
path = pathlib.Path(sys.argv[2])
with client.lock_session() as session:
    for _ in range(20):
        with session.lock("fight", "file", wait_seconds=60) as held:
            seen = path.read_text()
            time.sleep(0.001)
            path.write_text(f"{seen}{held.fence} ")
"""


def test_k01_k05_processes_that_fight_for_a_lock_never_hold_it_together(embedded: ClaimsServer, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with ExitStack() as stack:
        fighters = [stack.enter_context(program(FIGHT, embedded.url, str(path))) for _ in range(3)]
        assert [ended(fighter) for fighter in fighters] == [(0, "", "")] * 3
    fences = [int(word) for word in path.read_text().split()]
    assert len(fences) == 60
    assert fences == sorted(set(fences))


STOPPED = """
with client.lock_session(**SHORT) as session:
    held = session.acquire("work", "q")
    say(held.fence)
    hear()
    say(held.is_held, held.remaining(), session.standing.name)
    try:
        held.release()
    except LockLostError as error:
        say(error.code)
"""


def test_k02_k06_a_holder_that_was_stopped_past_its_terms_knows_of_its_loss(client: Client, embedded: ClaimsServer) -> None:
    with program(STOPPED, embedded.url) as holder, client.lock_session(**LONG) as session:
        fence = int(line(holder))
        holder.send_signal(signal.SIGSTOP)
        wait_for("the holder to stop", lambda: is_stopped(holder.pid))
        tell(holder)
        assert session.acquire("work", "q", wait_seconds=PATIENT).fence > fence
        last = client.get_lock("work", "q").last
        assert last is not None
        assert last.end is GrantEnd.EXPIRED
        holder.send_signal(signal.SIGCONT)
        assert (line(holder), line(holder)) == ("False 0:00:00 LOST", "LOCK_LOST")
        assert ended(holder) == (0, "", "")


def is_stopped(pid: int) -> bool:
    """Return True if a process is stopped by a signal (proc(5), the third field of `stat`)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


FORKED = """
import gc, os
with client.lock_session(**STEADY, on_lost=lambda: say("told the loss")) as session:
    with session.lock("work", "q") as held:
        say(held.fence)
        child = os.fork()
        if child == 0:
            say(held.is_held, held.remaining(), session.standing.name)
            for call in (held.release, lambda: session.acquire("work", "other"), session.open):
                try:
                    call()
                except MisconfiguredError as error:
                    say(error.code)
            # The end of the blocks, and of the values, touches nothing of the parent.
        else:
            assert os.waitpid(child, 0) == (child, 0)
            hear()
            say(held.is_held)
if child == 0:
    del session, held
    gc.collect()
    sys.stdout.flush()
    os._exit(0)
"""


def test_a_forked_child_neither_renews_nor_releases_the_lock_of_its_parent(client: Client, embedded: ClaimsServer) -> None:
    with program(FORKED, embedded.url) as parent:
        fence = int(line(parent))
        assert [line(parent) for _ in range(4)] == ["False 0:00:00 LOST", "FORKED", "FORKED", "CLOSED"]
        # A session of the same terms opens, falls silent and expires meanwhile, so the parent renews.
        outlast_steady_terms(client)
        lock = client.get_lock("work", "q")
        assert (lock.state, lock.fence) == (LockState.HELD, fence)
        tell(parent)
        assert ended(parent) == (0, "True\n", "")
    assert client.get_lock("work", "q").state is LockState.FREE


def outlast_steady_terms(client: Client) -> None:
    """Wait until a session of steady terms that was never renewed has expired."""
    session = client.lock_session(**STEADY)
    session.open()
    session.acquire("other", "silent")
    session._stop()
    wait_for("the silent session to expire", lambda: client.get_lock("other", "silent").state is LockState.FREE)


# `PyDLL` keeps the global interpreter lock during a call, so this one holds it for twelve seconds whatever else runs. The
# terms are ten seconds: a machine that pauses meanwhile for some of them does not end the session.
BUSY = """
import ctypes
with client.lock_session(**STEADY) as session, session.lock("work", "q") as held:
    say(held.fence)
    left = ctypes.PyDLL(None).sleep(12)
    say(held.is_held, left)
"""


def test_k12_a_process_that_keeps_the_interpreter_lock_past_its_terms_keeps_its_lock(
    client: Client, embedded: ClaimsServer
) -> None:
    with program(BUSY, embedded.url) as holder, client.lock_session(**LONG) as session:
        fence = int(line(holder))
        next_fence = session.acquire("work", "q", wait_seconds=PATIENT).fence
        assert line(holder) == "True 0"
        assert ended(holder) == (0, "", "")
        last = client.get_lock("work", "q").last
        assert last is not None
        assert (last.fence, last.end) == (fence, GrantEnd.SUCCEEDED)
        assert next_fence > fence


INTERRUPTED = """
session = client.lock_session(duration_seconds=3600)
session.open()
try:
    session.acquire("work", "q", wait_seconds=60)
except KeyboardInterrupt:
    say("interrupted")
session.close()
"""


def test_k10_an_interrupted_wait_leaves_the_queue(client: Client, embedded: ClaimsServer) -> None:
    with client.lock_session(**LONG) as session, session.lock("work", "q"), program(INTERRUPTED, embedded.url) as process:
        wait_for("the ask to wait", lambda: client.get_lock("work", "q").waiting == 1)
        process.send_signal(signal.SIGINT)
        assert line(process) == "interrupted"
        assert client.get_lock("work", "q").waiting == 0
        assert ended(process) == (0, "", "")


# No block closes the session: a thread of Python's waits in the extension when the interpreter ends.
EXIT = """
session = client.lock_session(on_lost=lambda: say("told the loss"))
session.open()
held = session.acquire("work", "q")
say(held.fence)
"""


def test_a_process_may_end_with_an_open_session(client: Client, embedded: ClaimsServer) -> None:
    with program(EXIT, embedded.url) as process:
        fence = int(line(process))
        assert ended(process) == (0, "", "")
    # Other processes may still work under the lock, so it passes on by the silence of its session only.
    lock = client.get_lock("work", "q")
    assert (lock.state, lock.fence) == (LockState.HELD, fence)
