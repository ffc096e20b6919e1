"""`leasehold-py verify`: a table, or a dump of one, compared with the claims of its cell."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from leasehold.claims import BucketType, SourceType, SubjectType
from leasehold.cli import _options as options
from leasehold.cli._exit import STOPPED
from leasehold.cli._output import check_places, progress_bar, show_json, show_line, show_table
from leasehold.client import Client
from leasehold.errors import MisconfiguredError
from leasehold.tables import Table, Verified, verify_table
from leasehold.tables.files import csv_table, parquet_table
from leasehold.tables.postgres import PostgresTable
from leasehold.verification import ClaimColumns, Report, TableColumns

_DATABASE_URL = ("postgres://", "postgresql://")


def verify(
    where: Annotated[str, typer.Argument(metavar="PLACE", help="A postgres:// URL, a .csv or a .parquet file.")],
    *,
    cell: options.CellId,
    source: Annotated[str, typer.Option(help="Which table it is to the server: USERS, EMAILS, ROUTES, …", metavar="TYPE")],
    claim: Annotated[
        list[str],
        typer.Option(
            help="What rows claim, as BUCKET=VALUE,SUBJECT=ID with two columns: USERNAMES=username,USER=id. Repeat it.",
            metavar="CLAIM",
        ),
    ],
    table: Annotated[str, typer.Option(help="The table's name in the database; --source in lower case unless told.")] = "",
    key: Annotated[str, typer.Option("--key-column", help="The column of the primary key.")] = "id",
    updated_at: Annotated[
        str | None, typer.Option("--updated-at-column", help="The column that says when a row was last changed.")
    ] = None,
    assume_utc: Annotated[bool, typer.Option("--assume-utc", help="Take times without a time zone for UTC.")] = False,
    text_keys: Annotated[bool, typer.Option("--text-keys", help="Keys of a CSV file are texts.")] = False,
    row_filter: Annotated[
        str | None, typer.Option("--where", help="A condition in SQL: other rows claim nothing.", metavar="SQL")
    ] = None,
    taken_at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"],
            help="When a dump was made, by the database's clock: 2026-01-31T12:00:00Z. Needed to apply one.",
        ),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Correct the claims; without it nothing is changed.")] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Give up every claim where the table has no rows.")
    ] = False,
    recent_within_seconds: Annotated[float, typer.Option(help="What was changed lately is left alone.", min=0.0)] = 3600.0,
    rows_per_page: Annotated[int, typer.Option(help="How many rows to compare at a time.", min=1)] = 1000,
    samples: Annotated[int, typer.Option(help="How many findings of each kind to show.", min=0)] = 10,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Show values, which may name people; else hashes.")
    ] = False,
    time_budget_seconds: Annotated[float | None, typer.Option(help="When to stop, at the end of a page.", min=0.0)] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Where to go on, and to note where a run has stopped. It holds values of claims.")
    ] = None,
    json: options.Json = False,
    server: options.Server = options.SERVER,
    ca: options.Ca = None,
    cert: options.Cert = None,
    key_file: Annotated[
        Path | None,
        typer.Option("--key", help="The private key of --cert, as PEM.", envvar="LEASEHOLD_KEY", rich_help_panel="Connection"),
    ] = None,
    timeout_seconds: options.TimeoutSeconds = options.TIMEOUT_SECONDS,
) -> None:
    """Compare a table with the claims of its cell: in PostgreSQL, or a CSV or Parquet dump in the order of its keys.

    A dry run unless --apply is given. The exit code is 1 where something is left to correct, and 7 where the run has stopped
    before the end, as --time-budget-seconds says. A dump that was cut short gives up the claims of the rows that it lacks: see
    in a dry run that "rows" is what the table has, and "extra" is no surprise.
    """
    check_places(checkpoint)
    source_type = _number(SourceType, source)
    columns = TableColumns(key, [_claim(text) for text in claim], updated_at, assume_utc)
    rows = _table(where, table or source.lower(), columns, text_keys=text_keys, taken_at=taken_at, where_sql=row_filter)
    with options.open_client(server, cell, ca, cert, key_file, timeout_seconds) as client:
        found = _run(
            client,
            rows,
            source_type=source_type,
            apply=apply,
            allow_empty=allow_empty,
            recent_within_seconds=recent_within_seconds,
            rows_per_page=rows_per_page,
            samples_per_outcome=samples,
            show_values=show_values,
            time_budget_seconds=time_budget_seconds,
            checkpoint=checkpoint.read_text() if checkpoint and checkpoint.exists() else None,
            failed=lambda found: _tell(found, checkpoint, "the run has failed before the end", json=json),
        )
    _tell(found, checkpoint, "stopped before the end", json=json)
    if not found.is_finished:
        raise typer.Exit(STOPPED)
    if _is_left(found):
        raise typer.Exit(1)


def _tell(found: Verified, checkpoint: Path | None, end: str, *, json: bool) -> None:
    _note(found, checkpoint)
    _show(found, json=json)
    if found.is_finished or json:
        return
    again = "run it again with the same" if checkpoint else "to go on from there instead of from the beginning, name a"
    show_line(f"{end}: {again} --checkpoint")


def _run(client: Client, table: Table, **settings: object) -> Verified:
    with progress_bar() as bar:
        task = bar.add_task("comparing", total=None)

        def tell(report: Report) -> None:
            bar.update(task, description=f"{report.rows:,} rows, {report.records:,} records, {report.updates:,} updates")

        return verify_table(client, table, progress=tell, **settings)  # type: ignore[arg-type]


def _number(kind: type[BucketType | SourceType | SubjectType], name: str) -> int:
    try:
        return kind[name.upper()].value
    except KeyError:
        known = ", ".join(one.name for one in kind)
        raise MisconfiguredError(f"`{name}` is none of the types: say one of {known}") from None


def _claim(text: str) -> ClaimColumns:
    try:
        (bucket, value), (subject, subject_id) = (part.split("=") for part in text.split(","))
    except ValueError:
        raise MisconfiguredError(f"`{text}` says no claim: write it as USERNAMES=username,USER=id") from None
    return ClaimColumns(_number(BucketType, bucket), value, _number(SubjectType, subject), subject_id)


def _table(
    where: str, name: str, columns: TableColumns, *, text_keys: bool, taken_at: datetime | None, where_sql: str | None
) -> Table:
    if where.startswith(_DATABASE_URL):
        return PostgresTable(where, name, columns, where=where_sql)
    if where_sql is not None:
        raise MisconfiguredError("`--where` is for tables in a database: leave such rows out of the dump")
    match Path(where).suffix.lower():
        case ".csv":
            return csv_table(where, columns, text_keys=text_keys, taken_at=taken_at)
        case ".parquet":
            return parquet_table(where, columns, taken_at=taken_at)
        case _:
            raise MisconfiguredError(f"`{where}` is no table: give a postgres:// URL, a .csv or a .parquet file")


def _note(found: Verified, path: Path | None) -> None:
    if path is None:
        return
    if found.checkpoint is None:
        path.unlink(missing_ok=True)
    else:
        path.touch(mode=0o600)
        path.write_text(found.checkpoint)


def _is_left(found: Verified) -> bool:
    report = found.report
    if report.dry_run:
        return bool(report.missing or report.different or report.extra or report.invalid)
    # What was changed meanwhile is as what was changed lately: another run finds it as it is then.
    return bool(report.invalid or report.other_cell or report.other_row or report.busy or report.failed)


def _show(found: Verified, *, json: bool) -> None:
    samples = [
        {**asdict(one.finding), "in_table": list(one.in_table), "in_service": list(one.in_service)} for one in found.samples
    ]
    if json:
        show_json({"report": asdict(found.report), "samples": samples, "is_finished": found.is_finished})
        return
    title = "dry run: what would be done" if found.report.dry_run else "what was done"
    counts = [(name.replace("_", " "), f"{count:,}") for name, count in asdict(found.report).items() if name != "dry_run"]
    show_table(title, ("count", "claims or rows"), [row for row in counts if row[1] != "0"], right=["claims or rows"])
    if found.samples:
        rows = [
            (
                one.finding.outcome,
                BucketType(one.finding.bucket_type).name,
                one.finding.source_id,
                one.finding.value_hash,
                ", ".join(one.in_table),
                ", ".join(one.in_service),
            )
            for one in found.samples
        ]
        show_table("samples", ("outcome", "type", "row", "value's hash", "in the table", "in the service"), rows)
