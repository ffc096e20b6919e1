"""Benchmark of verification: the engine reading Arrow, against the same comparison in plain Python.

The plain algorithm stores the records of a page by bucket in a dict and removes the record of each row. Remaining records
are extra.

Both sides compare the same pages in one process, alternately; the best of three turns counts. The CPU time includes the
conversion of rows and records, but not their creation. Plain Python receives its records as objects, without paying for
their decoding, which a real cell must do.

    python bench/verify.py [--json] [--rows N] [plain|threads|memory]
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa

from leasehold import BucketType, SourceType, SubjectType, encode_source_id, verification

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
OLD = NOW - timedelta(days=7)
RECENT = timedelta(hours=1)
ROWS_PER_PAGE = 1000
TURNS = 3
THREAD_TURNS = 7
"""The number of turns of the benchmark of threads. It measures wall-clock time, which other processes disturb."""
TYPES = (BucketType.USERNAMES, BucketType.EMAILS)
COLUMNS = verification.TableColumns(
    key="id",
    claims=[
        verification.ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "id"),
        verification.ClaimColumns(BucketType.EMAILS, "email", SubjectType.USER, "id"),
    ],
    updated_at="updated_at",
)


@dataclass(frozen=True, slots=True)
class PlainClaim:
    """A claim as the plain Python comparison holds it."""

    bucket_type: int
    value: str
    subject_type: int
    subject_id: int
    source_type: int
    source_id: bytes


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """A record of the service as the plain Python comparison holds it."""

    claim: PlainClaim
    updated_at: datetime


PlainRow = tuple[int, str, str, datetime]


@dataclass(frozen=True)
class Page:
    """The rows and records of one key range: as Python objects, as an Arrow batch, and as a serialized response."""

    rows: list[PlainRow]
    records: list[PlainRecord]
    answer: bytes


def ids(number: int) -> range:
    """Return the primary keys of the rows on page `number`."""
    return range(number * ROWS_PER_PAGE + 1, (number + 1) * ROWS_PER_PAGE + 1)


def batch(number: int) -> pa.RecordBatch:
    """Return the rows of page `number` as an Arrow batch."""
    keys = ids(number)
    names = [f"user-{key}" for key in keys]
    emails = [f"user-{key}@example.com" for key in keys]
    changed = pa.array([OLD] * len(keys), pa.timestamp("us", "UTC"))
    return pa.record_batch({"id": pa.array(keys), "username": names, "email": emails, "updated_at": changed})


def page(number: int) -> Page:
    """Return the rows and records of page `number`, with the records also as a serialized `ListRecordsResponse`."""
    rows = [(key, f"user-{key}", f"user-{key}@example.com", OLD) for key in ids(number)]
    records = [PlainRecord(claim, OLD) for row in rows for claim in claims(row)]
    return Page(rows, records, b"".join(encoded(record) for record in records))


def claims(row: PlainRow) -> Iterator[PlainClaim]:
    """Return the claims that a row of the plain Python comparison makes."""
    source_id = struct.pack(">Q", row[0])
    yield PlainClaim(BucketType.USERNAMES, row[1], SubjectType.USER, row[0], SourceType.USERS, source_id)
    yield PlainClaim(BucketType.EMAILS, row[2], SubjectType.USER, row[0], SourceType.USERS, source_id)


def field(number: int, value: int | bytes) -> bytes:
    """Return an encoded field of a Protobuf message."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def varint(value: int) -> bytes:
    """Return an integer encoded as a Protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encoded(record: PlainRecord) -> bytes:
    """Return a record encoded as an entry of a `ListRecordsResponse`, with every field that a server sets."""
    claim = record.claim
    bucket = field(1, claim.bucket_type) + field(2, claim.value.encode())
    subject = field(1, claim.subject_type) + field(2, claim.subject_id)
    source = field(1, claim.source_type) + field(2, claim.source_id)
    metadata = field(1, bucket) + field(2, subject) + field(3, source)
    at = field(1, int(record.updated_at.timestamp()))
    uuid = field(1, b"01a1fefb-0383-7360-95c3-3b4e0d5dfab0")
    return field(1, field(1, uuid) + field(2, metadata) + field(3, 1) + field(4, 1) + field(6, at) + field(7, at))


class Plain:
    """The plain Python side of the benchmark: compares rows and records that are Python objects."""

    def __init__(self) -> None:
        self.differences = 0
        self.threshold = NOW - RECENT

    def compare(self, page: Page) -> None:
        """Compare the rows of a page with its records, and count the differences."""
        by_bucket = {(one.claim.bucket_type, one.claim.value): one for one in page.records}
        for row in page.rows:
            if row[3] > self.threshold:
                continue
            for claim in claims(row):
                record = by_bucket.pop((claim.bucket_type, claim.value), None)
                if record is None or record.claim != claim:
                    self.differences += 1
        self.differences += sum(record.updated_at <= self.threshold for record in by_bucket.values())


class Engine:
    """The engine's side of the benchmark: reads rows from an Arrow stream, and records from serialized responses."""

    def __init__(self, rows: pa.Table | pa.RecordBatchReader) -> None:
        self.rows = verification.ArrowRows(rows, COLUMNS)
        self.run = verification.Verification(
            source_type=SourceType.USERS,
            bucket_types=TYPES,
            recent_within_seconds=RECENT.total_seconds(),
            rows_per_page=ROWS_PER_PAGE,
        )

    def compare(self, page: Page) -> None:
        """Drive the engine's run through the steps of one page."""
        run = self.run
        if isinstance(run.step(), verification.PageDone):
            run.proceed()
        step = run.step()
        assert isinstance(step, verification.FindBound)  # noqa: S101
        run.bound(self.rows.bound(step.after, step.rows))
        run.encoded_records(page.answer, now=NOW)
        run.arrow_rows(self.rows, now=NOW)

    @property
    def differences(self) -> int:
        """The number of differences that the engine has found."""
        report = self.run.report()
        return report.missing + report.different + report.extra


def measure(make: Callable[[], Plain | Engine], pages: list[Page]) -> float:
    """Return the CPU seconds that one side of the benchmark, made by `make`, needs to compare all pages."""
    start = time.process_time()
    subject = make()
    for current in pages:
        subject.compare(current)
    seconds = time.process_time() - start
    if subject.differences:
        sys.exit(f"expected no differences, found {subject.differences}")
    return seconds


def compare(rows: int) -> dict[str, float]:
    """Return the claims compared per CPU second, by side of the benchmark."""
    pages = [page(number) for number in range(rows // ROWS_PER_PAGE)]
    table = pa.Table.from_batches([batch(number) for number in range(len(pages))])
    sides: dict[str, Callable[[], Plain | Engine]] = {"ours": lambda: Engine(table), "peer": Plain}
    turns = [{name: measure(make, pages) for name, make in sides.items()} for _ in range(TURNS)]
    return {name: 2 * rows / min(turn[name] for turn in turns) for name in sides}


def scale(rows: int) -> dict[str, float]:
    """Return the claims compared per second by two threads, each with its own run, and by one thread."""
    answers, table = large_pages(rows)

    def work() -> None:
        run = verification.Verification(
            source_type=SourceType.USERS, bucket_types=TYPES, recent_within_seconds=3600, rows_per_page=LARGE
        )
        source = verification.ArrowRows(table, COLUMNS)
        for number, answer in enumerate(answers):
            run.bound(source.bound(encode_source_id(number * LARGE) if number else b"", LARGE))
            run.encoded_records(answer, now=NOW)
            run.arrow_rows(source, now=NOW)
            run.proceed()

    def seconds(threads: int) -> float:
        workers = [threading.Thread(target=work) for _ in range(threads)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return time.perf_counter() - start

    turns = [(seconds(2), seconds(1)) for _ in range(THREAD_TURNS)]
    two, one = (min(turn[side] for turn in turns) for side in (0, 1))
    return {"ours": 4 * rows / two, "peer": 2 * rows / one}


LARGE = 20_000
"""The number of rows on a page of the benchmark of threads. Large pages keep the time under the interpreter lock small."""


def large_pages(rows: int) -> tuple[list[bytes], pa.Table]:
    """Return the server's serialized responses for large pages, and the Arrow table of all rows."""
    small = LARGE // ROWS_PER_PAGE
    answers = [
        b"".join(page(number).answer for number in range(first, first + small))
        for first in range(0, rows // ROWS_PER_PAGE, small)
    ]
    return answers, pa.Table.from_batches([batch(number) for number in range(rows // ROWS_PER_PAGE)])


def memory(rows: int) -> float:
    """Return the peak memory of this process, in megabytes, after the engine has compared a stream of rows."""
    stream = pa.RecordBatchReader.from_batches(batch(0).schema, (batch(at) for at in range(rows // ROWS_PER_PAGE)))
    engine = Engine(stream)
    for number in range(rows // ROWS_PER_PAGE):
        engine.compare(Page([], [], page(number).answer))
    if engine.differences:
        sys.exit(f"expected no differences, found {engine.differences}")
    return peak_kilobytes() / 1024


def peak_kilobytes() -> int:
    """Return this process's peak memory in KiB. `getrusage` would include the parent's memory from before `exec`."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def main() -> None:
    """Run the selected benchmark and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rows", type=int, default=1_000_000, help="number of rows, each with two claims")
    parser.add_argument("what", choices=["plain", "threads", "memory"], nargs="?", default="plain")
    arguments = parser.parse_args()
    if arguments.what == "memory":
        measured = {"ours": memory(arguments.rows), "peer": 300.0}
    else:
        measured = (compare if arguments.what == "plain" else scale)(arguments.rows)
    measured["ratio"] = measured["ours"] / measured["peer"]
    if arguments.json:
        print(json.dumps(measured))  # noqa: T201
    else:
        print(*(f"{name:6} {number:14,.2f}" for name, number in measured.items()), sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
