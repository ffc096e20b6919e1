"""Tests of threads: the extension releases the global interpreter lock, and a run admits one thread at a time."""

from __future__ import annotations

import threading
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

import leasehold
from leasehold import BucketType, SourceType, SubjectType, verification

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
USERNAME = verification.ClaimColumns(BucketType.USERNAMES, "name", SubjectType.USER, "id")
COLUMNS = verification.TableColumns("id", [USERNAME])
DEADLINE_SECONDS = 60


class Turnstile:
    """An Arrow stream whose first read, inside the extension, waits until another thread has run."""

    def __init__(self) -> None:
        self.is_reading = threading.Event()
        self.may_continue = threading.Event()
        self.table = pa.table({"id": [1, 2], "name": ["a", "b"]})

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.table.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def batches(self) -> Any:
        self.is_reading.set()
        assert self.may_continue.wait(DEADLINE_SECONDS), "no other thread ran"
        yield from self.table.to_batches()


def test_other_threads_run_while_a_stream_is_read_and_cannot_use_it() -> None:
    turnstile = Turnstile()
    rows = verification.ArrowRows(turnstile, COLUMNS)
    found: list[bytes | None] = []
    worker = threading.Thread(target=lambda: found.append(rows.bound(b"", 2)))
    worker.start()
    # The worker thread is inside the extension now, and this thread runs at the same time.
    assert turnstile.is_reading.wait(DEADLINE_SECONDS)
    with pytest.raises(leasehold.SessionInUseError):
        rows.bound(b"", 1)
    turnstile.may_continue.set()
    worker.join(DEADLINE_SECONDS)
    assert found == [leasehold.encode_source_id(2)]


def test_another_thread_cannot_use_a_run_that_reads_rows() -> None:
    turnstile = Turnstile()
    rows = verification.ArrowRows(turnstile, COLUMNS)
    run = verification.Verification(source_type=SourceType.USERS, bucket_types=[BucketType.USERNAMES], recent_within_seconds=0)
    run.bound(None)
    run.records(leasehold.RecordPage((), False, NOW))
    worker = threading.Thread(target=lambda: run.arrow_rows(rows, now=NOW))
    worker.start()
    assert turnstile.is_reading.wait(DEADLINE_SECONDS)
    with pytest.raises(leasehold.SessionInUseError, match="create one session per thread"):
        run.step()
    turnstile.may_continue.set()
    worker.join(DEADLINE_SECONDS)
    assert isinstance(run.step(), verification.Begin)
