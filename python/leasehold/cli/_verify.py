"""`leasehold-py verify`: compares a table, or a dump of one, with the claims of its cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from json import dumps as to_json
from pathlib import Path
from typing import Annotated

import typer

from leasehold.claims import BucketType, SourceType, SubjectType
from leasehold.cli import _options as options
from leasehold.cli._exit import INTERRUPTED, STOPPED
from leasehold.cli._interrupt import until_interrupt
from leasehold.cli._output import check_output_paths, progress_bar, show_json, show_line, show_table
from leasehold.cli._server import Connection
from leasehold.client import Client
from leasehold.errors import MisconfiguredError
from leasehold.tables import Key, Sample, Table, VerificationResult, verify_table
from leasehold.tables.files import csv_table, parquet_table
from leasehold.verification import ClaimColumns, Report, TableColumns

_SAMPLE_COLUMNS = ("outcome", "type", "key", "reason", "in the table", "in the service")
_DATABASE_URL = ("postgres://", "postgresql://")


def verify(
    table_source: Annotated[str, typer.Argument(metavar="URL|FILE", help="A postgres:// URL, a .csv or a .parquet file.")],
    *,
    cell: options.CellId,
    source: Annotated[str, typer.Option(help="The source type of the claims: USERS, EMAILS, ROUTES, …", metavar="TYPE")],
    claim: Annotated[
        list[str],
        # Typer 0.27.0 would name the option after its metavar.
        typer.Option(
            "--claim",
            help="A claim of each row, as BUCKET=COLUMN,SUBJECT=COLUMN: USERNAMES=username,USER=id. Can be repeated.",
            metavar="CLAIM",
        ),
    ],
    table: Annotated[
        str, typer.Option(help="The name of the table in the database. The default is --source in lower case.")
    ] = "",
    key: Annotated[str, typer.Option("--key-column", help="The primary key column.")] = "id",
    updated_at: Annotated[
        str | None, typer.Option("--updated-at-column", help="The column with the time of the last change.")
    ] = None,
    assume_utc: Annotated[bool, typer.Option("--assume-utc", help="Read times without a time zone as UTC.")] = False,
    text_keys: Annotated[bool, typer.Option("--text-keys", help="Read the keys of a CSV file as strings.")] = False,
    null_values: Annotated[
        list[str],
        typer.Option(
            "--null-value",
            help="A text in a CSV file that stands for null unless quoted, such as NULL. Can be repeated. With the empty text, "
            "only empty fields are null.",
            metavar="TEXT",
            default_factory=list,
            show_default=False,
        ),
    ],
    row_filter: Annotated[
        str | None, typer.Option("--where", help="An SQL condition. Rows that fail it make no claims.", metavar="SQL")
    ] = None,
    taken_at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"],
            help="The time of the dump by the database's clock: 2026-01-31T12:00:00Z. --apply needs it.",
        ),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Correct the claims. Without it, nothing changes.")] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="If the table has no rows, destroy all of its claims.")
    ] = False,
    max_destroy_share: Annotated[
        float,
        typer.Option(help="Stop before destroying more than this share of the table's claims.", min=0.0, max=1.0),
    ] = 0.1,
    recent_within_seconds: Annotated[
        float, typer.Option(help="Skip rows and records that changed within this time.", min=0.0, max=options.MAX_SECONDS)
    ] = 3600.0,
    rows_per_page: Annotated[int, typer.Option(help="The number of rows per page.", min=1, max=2**32 - 1)] = 1000,
    samples: Annotated[int, typer.Option(help="The number of findings to show for each outcome.", min=0, max=1_000_000)] = 10,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Show values, which may be personal data, in the samples.")
    ] = False,
    time_budget_seconds: Annotated[
        float | None, typer.Option(help="Stop at the end of the page after this time.", min=0.0, max=options.MAX_SECONDS)
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A file to continue from, and to store the position in. It contains values of claims.")
    ] = None,
    json: options.Json = False,
    server: options.Server = options.SERVER,
    ca: options.Ca = None,
    cert: options.Cert = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key", help="The PEM file of the private key of --cert.", envvar="LEASEHOLD_KEY", rich_help_panel="Connection"
        ),
    ] = None,
    timeout_seconds: options.TimeoutSeconds = options.TIMEOUT_SECONDS,
) -> None:
    """Compare a table with the claims of its cell. Without --apply, only report the differences.

    The table is in PostgreSQL, or in a CSV or Parquet dump that is sorted by its keys. The exit code is 1 if differences
    remain, and 7 if --time-budget-seconds stopped the run before the end. Ctrl-C stops it after the current page, and the
    exit code is then 130.

    A truncated dump destroys the claims of its missing rows, up to --max-destroy-share. First compare "rows" and "extra" of a
    dry run with the table.
    """
    check_output_paths(checkpoint)
    source_type = _enum_number(SourceType, source)
    columns = TableColumns(key, [_claim(text) for text in claim], updated_at, assume_utc)
    rows = _open_table(
        table_source,
        table or source.lower(),
        columns,
        text_keys=text_keys,
        null_values=null_values or None,
        taken_at=taken_at,
        row_filter=row_filter,
    )
    with until_interrupt() as stop, Connection(server, ca, cert, key_file, timeout_seconds).client(cell) as client:
        result = _verify_with_progress(
            client,
            rows,
            source_type=source_type,
            apply=apply,
            allow_empty=allow_empty,
            max_destroy_share=max_destroy_share,
            recent_within_seconds=recent_within_seconds,
            rows_per_page=rows_per_page,
            samples_per_outcome=samples,
            show_values=show_values,
            time_budget_seconds=time_budget_seconds,
            stop=stop,
            checkpoint=checkpoint.read_text() if checkpoint and checkpoint.exists() else None,
            on_failure=lambda partial: _report(partial, checkpoint, "the run failed before the end", json=json),
        )
    _report(result, checkpoint, "stopped before the end", json=json)
    if not result.is_finished:
        raise typer.Exit(INTERRUPTED if stop.is_set() else STOPPED)
    if _differences_remain(result):
        raise typer.Exit(1)


def _report(result: VerificationResult, checkpoint: Path | None, end: str, *, json: bool) -> None:
    _store_checkpoint(result, checkpoint)
    _show(result, json=json)
    if result.is_finished or json:
        return
    advice = "continue with the same --checkpoint" if checkpoint else "to continue later, use --checkpoint"
    show_line(f"{end}: {advice}")


def _verify_with_progress(client: Client, table: Table, **settings: object) -> VerificationResult:
    with progress_bar() as bar:
        task = bar.add_task("comparing", total=None)

        def show(report: Report) -> None:
            bar.update(task, description=f"{report.rows:,} rows, {report.records:,} records, {report.updates:,} updates")

        return verify_table(client, table, on_progress=show, **settings)  # type: ignore[arg-type]


def _enum_number(enum_class: type[BucketType | SourceType | SubjectType], name: str) -> int:
    try:
        return enum_class[name.upper()].value
    except KeyError:
        known = ", ".join(member.name for member in enum_class)
        raise MisconfiguredError(f"`{name}` is not a type: use one of {known}") from None


def _claim(text: str) -> ClaimColumns:
    try:
        (bucket, value), (subject, subject_id) = (part.split("=") for part in text.split(","))
    except ValueError:
        raise MisconfiguredError(f"`{text}` is not a claim: write it as USERNAMES=username,USER=id") from None
    return ClaimColumns(_enum_number(BucketType, bucket), value, _enum_number(SubjectType, subject), subject_id)


def _open_table(
    source: str,
    name: str,
    columns: TableColumns,
    *,
    text_keys: bool,
    null_values: Sequence[str] | None,
    taken_at: datetime | None,
    row_filter: str | None,
) -> Table:
    if source.startswith(_DATABASE_URL):
        # This import needs the extra `postgres`, which files do without.
        from leasehold.tables.postgres import PostgresTable

        return PostgresTable(source, name, columns, where=row_filter)
    if row_filter is not None:
        raise MisconfiguredError("`--where` needs a table in a database: omit those rows from the dump instead")
    match Path(source).suffix.lower():
        case ".csv":
            return csv_table(source, columns, text_keys=text_keys, null_values=null_values, taken_at=taken_at)
        case ".parquet":
            return parquet_table(source, columns, taken_at=taken_at)
        case _:
            raise MisconfiguredError(f"`{source}` is not a table: use a postgres:// URL, a .csv or a .parquet file")


def _store_checkpoint(result: VerificationResult, path: Path | None) -> None:
    if path is None:
        return
    if result.checkpoint is None:
        path.unlink(missing_ok=True)
    else:
        # A checkpoint contains values of claims. Restrict the file's mode before the first byte is written.
        path.touch(mode=0o600)
        path.write_text(result.checkpoint)


def _differences_remain(result: VerificationResult) -> bool:
    report = result.report
    if report.dry_run:
        return bool(report.missing or report.different or report.extra or report.invalid)
    # Results `changed` and `recent` need no correction now: their rows changed during the run, and the next run verifies them.
    return bool(report.invalid or report.other_cell or report.other_row or report.busy or report.failed)


def _show(result: VerificationResult, *, json: bool) -> None:
    if json:
        show_json(
            {
                "report": asdict(result.report),
                "samples": [_fields(sample) for sample in result.samples],
                "is_finished": result.is_finished,
            }
        )
        return
    title = "dry run: planned corrections" if result.report.dry_run else "corrections"
    numbers = {name: count for name, count in asdict(result.report).items() if not isinstance(count, bool)}
    counts = [(name.replace("_", " "), f"{count:,}") for name, count in numbers.items()]
    show_table(title, ("count", "claims or rows"), [row for row in counts if row[1] != "0"], right=["claims or rows"])
    if result.report.over_destroy_limit:
        show_line("`--apply` would stop: it would destroy more claims than --max-destroy-share allows")
    if result.samples:
        show_table("samples", _SAMPLE_COLUMNS, [_cells(sample) for sample in result.samples])


def _fields(sample: Sample) -> dict[str, object]:
    return {
        "outcome": sample.outcome,
        "bucket_type": sample.type_name,
        "key": _plain(sample.key),
        "reason": sample.reason,
        "in_table": sample.in_table,
        "in_service": sample.in_service,
    }


def _plain(key: Key) -> int | str:
    if isinstance(key, bytes):
        return key.hex()
    return key if isinstance(key, int) else str(key)


def _cells(sample: Sample) -> tuple[str, ...]:
    # Quotes tell the text "7" from the number 7: they are keys of different claims.
    key = to_json(sample.key, ensure_ascii=False) if isinstance(sample.key, str) else str(_plain(sample.key))
    values = (", ".join(values) for values in (sample.in_table, sample.in_service))
    return (sample.outcome, sample.type_name, key, sample.reason, *values)
