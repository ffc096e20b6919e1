"""Plays golden vectors on the claims service in memory, and returns replies in the notation of the vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone

from leasehold import (
    BucketType,
    Claim,
    ClaimsService,
    InvalidError,
    LeaseholdError,
    LeasePage,
    NotFoundError,
    OutstandingLease,
    Record,
    SourceType,
    SubjectType,
    reconciliation,
    verification,
)
from support import notation
from support.notation import read_number, read_text

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
STALE_AFTER = timedelta(seconds=1)
MANY = 20
"""The largest number of lines of one kind that a vector lists. Longer lists are summarised there, and not compared here."""
ANSWERS = {"LEASE_ROLLED_BACK": "rolled_back", "LEASE_COMMITTED": "committed", "LEASE_NOT_FOUND": "not_found"}
NAMES = {"committed": "Committed", "rolled_back": "RolledBack", "done": "Done", "not_found": "NotFound"}
FATES = {"committed": "Committed", "lost": "Lost", "forgotten": "Forgotten"}


class Player:
    """Plays the steps of one scenario of a golden vector on a claims service in memory."""

    def __init__(self) -> None:
        self.now = NOW
        self.service = ClaimsService([1, 2, 3], clock=self.tick)
        self.leases: list[str] = []
        self.cursor: str | None = None
        self.tables: set[int] = set(SourceType)

    def tick(self) -> datetime:
        """Return the time of the service's clock, which advances by one second per call."""
        self.now += timedelta(seconds=1)
        return self.now

    def play(self, request: str) -> list[str]:
        """Execute a step of a scenario. Return the lines of its reply."""
        words = notation.tokens(request)
        if len(words) > 2 and words[1] == "times":
            replies = [self.reply(notation.numbered(words[2:], turn)) for turn in range(1, int(words[0]) + 1)]
            lines = [*replies[0], "…", *replies[-1]]
        else:
            lines = self.reply(words)
        self.service.check()
        return lines

    def reply(self, words: list[str]) -> list[str]:
        """Execute one command of a step. Return the lines of its reply."""
        try:
            return list(getattr(self, f"_{words[0]}")(*words[1:]))
        except LeaseholdError as error:
            return list(error_lines(error))

    def _begin(self, cell: str, *words: str) -> Iterator[str]:
        creates: list[Claim] = []
        destroys: list[Claim] = []
        organization, key = None, None
        starts = re.compile(r"create$|destroy$|organization=|key=")
        for part in notation.split_before(list(words), starts) if words else []:
            match part:
                case ["create", *claim]:
                    creates += notation.read_claims(claim)
                case ["destroy", *claim]:
                    destroys += notation.read_claims(claim)
                case [word] if word.startswith("organization="):
                    organization = int(word.removeprefix("organization="))
                case [word]:
                    key = word.removeprefix("key=")
                    key = read_text(key) if key.startswith('"') else key
        self.tables |= {claim.source.source_type for claim in creates if claim.source and claim.source.source_type > 0}
        lease = self.service.begin(int(cell), creates, destroys, organization_id=organization, idempotency_key=key)
        if lease.uuid not in self.leases:
            self.leases.append(lease.uuid)
        yield f"begun {self.name(lease.uuid)} fence={lease.fence}"

    def _commit(self, cell: str, lease: str) -> Iterator[str]:
        self.service.commit(int(cell), self.lease(lease))
        yield "settled"

    def _rollback(self, cell: str, lease: str) -> Iterator[str]:
        self.service.rollback(int(cell), self.lease(lease))
        yield "settled"

    def _get(self, bucket_type: str, value: str) -> Iterator[str]:
        record = self.service.get(read_number(bucket_type, BucketType, "bucket"), read_text(value))
        yield f"cell {record.cell_id}: {self.record(record)}"

    def _classify(self, *words: str) -> Iterator[str]:
        for bucket_type, value in zip(words[::2], words[1::2], strict=True):
            try:
                record = self.service.get(read_number(bucket_type, BucketType, "bucket"), read_text(value))
            except NotFoundError:
                continue
            yield f"cell {record.cell_id} by {bucket_type} {value}"
            return
        yield "rejected CLAIM_NOT_FOUND"

    def _leases(self, cell: str, *options: str) -> Iterator[str]:
        given = dict(option.split("=") for option in options if "=" in option)
        limit = int(given["limit"]) if "limit" in given else None
        since = self.since(int(cell), given["since"]) if "since" in given else None
        cursor = self.cursor if "next" in options else None
        page = self.service.list_leases(int(cell), limit=limit, created_after=since, cursor=cursor)
        self.cursor = page.cursor
        yield f"leases {self.names([lease.uuid for lease in page.leases])}{', and more' if page.cursor else ''}"

    def _outstanding(self, cell: str) -> Iterator[str]:
        for lease in self.service.list_leases(int(cell)).leases:
            organization = f" organization={lease.organization_id}" if lease.organization_id else ""
            yield f"outstanding {self.name(lease.uuid)}{organization}"

    def _records(self, cell: str, source_type: str, *options: str) -> Iterator[str]:
        given = dict(option.split("=", 1) for option in options)
        types = [read_number(name, BucketType, "bucket") for name in given.get("types", "").split(",") if name]
        page = self.service.list_records(
            int(cell),
            read_number(source_type, SourceType, "source"),
            bucket_types=types,
            after=notation.read_id(given["gt"]) if "gt" in given else b"",
            upto=notation.read_id(given["lte"]) if "lte" in given else b"",
        )
        if len(page.records) > MANY:
            ends = [self.source(record) for record in (page.records[0], page.records[-1])]
            yield f"records {len(page.records)} from {ends[0]} to {ends[1]}"
        else:
            yield from map(self.record, page.records) if page.records else ["records none"]
        if page.truncated:
            yield "truncated"

    def _restart(self) -> Iterator[str]:
        yield "restarted"

    def _pass(self, seconds: str) -> Iterator[str]:
        self.now += timedelta(seconds=int(seconds))
        yield "passed"

    def _forget(self) -> Iterator[str]:
        self.tick()
        yield f"forgotten {self.service.forget_settled()}"

    def _verify(self, cell: str, source_type: str, *words: str) -> Iterator[str]:
        table = read_number(source_type, SourceType, "source")
        options = {name: int(value) for name, value in re.findall(r"^(page|share)=(\d+)$", "\n".join(words[:2]), re.MULTILINE)}
        rest = list(words[len(options) :])
        rows = [read_row(part) for part in notation.split_before(rest, re.compile("row$"))] if rest else []
        rows.sort(key=lambda row: row.source_id)
        share = options.get("share", 10) / 100
        verifier = Verifier(self.service, int(cell), table, rows, options.get("page", 100), share)
        report = verifier.run()
        counts = {name: count for name, count in sorted(vars(report).items()) if count and name != "records"}
        yield " ".join(["verified", *(f"{name}={count}" for name, count in counts.items())])
        if isinstance(end := verifier.session.step(), verification.Refused):
            yield f"refused destroys={end.destroys} claims={end.claims} share={end.needed_share * 100:.0f}"

    def _reconcile(self, cell: str, remote: str, *local: str) -> Iterator[str]:
        ages = {"fresh": timedelta(), "stale": STALE_AFTER}
        rows = {self.lease(name): NOW - ages[age] for name, _, age in (word.partition("=") for word in local)}
        lines = list(self.reconcile(int(cell), NOW - ages[remote.removeprefix("remote=")], rows))
        yield from sorted(lines, key=lambda line: line.split()[1].rstrip(":"))
        yield f"reconciled, rows left: {' '.join(sorted(map(self.name, rows))) or 'none'}"

    def reconcile(self, cell: int, begun: datetime, rows: dict[str, datetime]) -> Iterator[str]:
        """Run a reconciliation of a cell, and yield its output lines. `rows` contains the cell's local rows: lease and time."""
        run = reconciliation.Reconciliation(stale_after_seconds=STALE_AFTER.total_seconds(), rows_per_page=100)
        while True:
            match run.step():
                case reconciliation.ListLeases():
                    leases = [lease.uuid for lease in self.service.list_leases(cell).leases]
                    run.leases(LeasePage(tuple(OutstandingLease(lease, begun, begun) for lease in leases), None, NOW))
                case reconciliation.FindRows(leases=leases):
                    run.rows(local_rows({lease: time for lease, time in rows.items() if lease in leases}), now=NOW)
                case reconciliation.ListRows():
                    run.rows(local_rows({lease: time for lease, time in rows.items() if time <= NOW - STALE_AFTER}), now=NOW)
                case reconciliation.Settle(lease=lease, outcome=outcome):
                    answer = self.settle(cell, lease, outcome)
                    yield f"settle {self.name(lease)} {NAMES[outcome]}: {NAMES[answer]}"
                    run.settled(answer)  # type: ignore[arg-type]
                case reconciliation.DeleteRow(lease=lease, fate=fate):
                    del rows[lease]
                    yield f"delete {self.name(lease)}: {FATES[fate]}"
                    run.deleted()
                case reconciliation.Done():
                    return

    def settle(self, cell: int, lease: str, outcome: str) -> str:
        """Settle a lease on the service. Return the answer to report to the reconciliation run."""
        try:
            (self.service.commit if outcome == "committed" else self.service.rollback)(cell, lease)
        except LeaseholdError as error:
            return ANSWERS[error.code]
        return "done"

    def since(self, cell: int, name: str) -> datetime:
        """Return the earliest time of begin that `since=NAME` stands for in the notation."""
        if name == "future":
            return self.now + timedelta(hours=1)
        leases = self.service.list_leases(cell, limit=1000).leases
        return next(lease.created_at for lease in leases if lease.uuid == self.lease(name))

    def lease(self, token: str) -> str:
        """Return the id of the lease that a word such as `L1` or `unknown` stands for."""
        if token == "unknown":  # noqa: S105
            return "00000000-0000-4000-8000-00000000dead"
        return read_text(token) if token.startswith('"') else self.leases[int(token[1:]) - 1]

    def name(self, lease: str) -> str:
        """Return the name of a lease in the notation, such as `L1`."""
        return f"L{self.leases.index(lease) + 1}"

    def names(self, leases: list[str]) -> str:
        """Return leases in the notation. More than three consecutive leases are written as a range."""
        numbers = [self.leases.index(lease) + 1 for lease in leases]
        runs: list[list[int]] = []
        for number in numbers:
            if runs and runs[-1][-1] + 1 == number:
                runs[-1].append(number)
            else:
                runs.append([number])
        written = (f"L{run[0]}..L{run[-1]}" if len(run) > 3 else " ".join(f"L{number}" for number in run) for run in runs)
        return " ".join(written) or "none"

    def record(self, record: Record) -> str:
        """Return a record in the notation of golden vectors."""
        assert record.claim.subject is not None
        bucket_type = notation.write_number(record.claim.bucket_type, BucketType, "bucket")
        subject = notation.write_number(record.claim.subject.subject_type, SubjectType, "subject")
        under = f" under {self.name(record.lease_uuid)}" if record.lease_uuid else ""
        value = f"{record.claim.bucket_value!r} {record.status} {subject}:{record.claim.subject.id}"
        return f"{bucket_type} {value} from {self.source(record)}{under}"

    def source(self, record: Record) -> str:
        """Return a record's source in the notation, with the id in hexadecimal."""
        assert record.claim.source is not None
        table = notation.write_number(record.claim.source.source_type, SourceType, "source")
        return f"{table}:x{record.claim.source.id.hex()}"

    def state(self) -> list[str]:
        """Return the whole state of the service in the notation: all leases and records of the three cells."""
        return [line for cell in (1, 2, 3) for line in self._cell(cell)] or ["nothing"]

    def _cell(self, cell: int) -> list[str]:
        leases = [lease.uuid for lease in self._all_leases(cell)]
        records = [f"  {self.record(record)}" for table in sorted(self.tables) for record in self._all_records(cell, table)]
        if not leases and not records:
            return []
        return [f"cell {cell}: {self.names(leases)}" if leases else f"cell {cell}", *records]

    def _all_leases(self, cell: int) -> Iterator[OutstandingLease]:
        page = self.service.list_leases(cell, limit=1000)
        yield from page.leases
        while page.cursor:
            page = self.service.list_leases(cell, limit=1000, cursor=page.cursor)
            yield from page.leases

    def _all_records(self, cell: int, table: int) -> Iterator[Record]:
        page = self.service.list_records(cell, table)
        yield from page.records
        while page.truncated:
            last = page.records[-1].claim.source
            assert last is not None
            page = self.service.list_records(cell, table, after=last.id)
            yield from page.records


class Verifier:
    """Drives a verification run over a list of rows, like a cell does."""

    def __init__(
        self, service: ClaimsService, cell: int, table: int, rows: list[verification.Row], page: int, share: float = 1.0
    ) -> None:
        self.service, self.cell, self.table, self.rows = service, cell, table, rows
        self.lease = ""
        self.types = {claim.bucket_type for row in rows for claim in row.claims} | {BucketType.USERNAMES}
        self.session = verification.Verification(
            source_type=table,
            bucket_types=self.types,
            recent_within_seconds=0,
            rows_per_page=page,
            max_destroy_share=share,
            hash_seed=0,
        )

    def run(self) -> verification.Report:
        """Execute the run's steps until its end. Return its report."""
        session = self.session
        while not isinstance(step := session.step(), verification.Done | verification.Refused):
            match step:
                case verification.FindBound(after=after, rows=count):
                    beyond = [row.source_id for row in self.rows if row.source_id > after]
                    session.bound(beyond[count - 1] if count <= len(beyond) else None)
                case verification.ListRecords(after=after, upto=upto):
                    session.records(
                        self.service.list_records(self.cell, self.table, bucket_types=self.types, after=after, upto=upto)
                    )
                case verification.ReadRows(after=after, upto=upto):
                    self.read_rows(after, upto)
                case verification.ReadAgain(ids=ids):
                    session.rows([row for row in self.rows if row.source_id in ids], now=NOW)
                case verification.Begin(creates=creates, destroys=destroys):
                    self.begin(creates, destroys)
                case verification.Commit():
                    self.service.commit(self.cell, self.lease)
                    session.settled()
                case verification.RollBack():
                    raise AssertionError("a rollback of rows that do not change")
                case verification.PageDone():
                    session.proceed()
        return session.report()

    def read_rows(self, after: bytes, upto: bytes) -> None:
        """Answer the step `ReadRows` with the rows in the requested range."""
        rows = [row for row in self.rows if row.source_id > after and (not upto or row.source_id <= upto)]
        self.session.rows(rows, now=NOW)

    def begin(self, creates: Sequence[Claim], destroys: Sequence[Claim]) -> None:
        """Answer the step `Begin`: begin the update on the service."""
        try:
            self.lease = self.service.begin(self.cell, creates, destroys).uuid
        except LeaseholdError as error:
            self.session.refused(error)
        else:
            self.session.begun()


def read_row(words: list[str]) -> verification.Row:
    """Return the row that `row SOURCE`, then type, value and subject of each claim, stands for."""
    claims = [notation.read_claim(words[index : index + 3]) for index in range(2, len(words), 3)]
    return verification.Row(notation.read_source(words[1]).id, claims)


def local_rows(rows: dict[str, datetime]) -> list[reconciliation.LocalRow]:
    """Return the local lease rows, sorted by time and lease."""
    return [reconciliation.LocalRow(lease, time) for time, lease in sorted((time, lease) for lease, time in rows.items())]


def error_lines(error: LeaseholdError) -> Iterator[str]:
    """Yield the lines that describe a refusal in the notation of golden vectors."""
    yield f"rejected {error.code}{', retry' if error.retry_after_seconds is not None else ''}"
    for detail in error.details:
        bucket_type = notation.write_number(detail.bucket_type, BucketType, "bucket")
        yield f"  {detail.list.removesuffix('s')}_records[{detail.position}] {bucket_type} {detail.code}"
    if isinstance(error, InvalidError):
        yield f"  says {error.message}"
