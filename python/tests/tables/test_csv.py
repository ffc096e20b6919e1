"""Tests of CSV files as databases, data frames, Ruby and spreadsheets write them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.claims import raised_by
from support.claims_server import ClaimsServer
from support.users import LONG_AGO

from leasehold import BucketType, SourceType, SubjectType, errors
from leasehold.client import Client
from leasehold.tables import VerificationResult, verify_table
from leasehold.tables.files import arrow_table, csv_table, parquet_table
from leasehold.verification import ClaimColumns, TableColumns

COLUMNS = TableColumns("id", [ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "id")])
TIMED = replace(COLUMNS, updated_at="at")


@pytest.fixture
def client(embedded: ClaimsServer) -> Iterator[Client]:
    with Client(embedded.url, cell_id=1) as client:
        yield client


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.csv"


def column_error(path: Path, text: str, columns: TableColumns = COLUMNS) -> errors.ColumnError:
    """Return the error of a file with this text, after asserting that the error contains no secret."""
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    error = raised_by(csv_table(path, columns).check)
    assert isinstance(error, errors.ColumnError)
    assert "secret" not in str(error)
    return error


@pytest.mark.parametrize(
    ("text", "column", "row"),
    [
        ("id,username\n1,ann\n2,bob\nsecret,carol\n", "id", 2),
        ("id,username\n1,ann\n,secret\n", "id", 1),
        ("id,username\n2,ann\n1,secret\n", "id", 1),
        ("id,username\n1,secret\udce9\n", "username", 0),
        ("id,username\n" + "".join(f"{key},{'x' * 50}{key}\n" for key in range(30_000)) + "secret,bob\n", "id", 30_000),
    ],
)
def test_errors_of_values_name_the_row(path: Path, text: str, column: str, row: int) -> None:
    error = column_error(path, text)
    assert error.column == column
    assert f"row {row}:" in f"{error}:"


@pytest.mark.parametrize("time", ["secret", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00"])
def test_errors_of_times_name_the_row(path: Path, time: str) -> None:
    good = "".join(f"{key},{'x' * 50}{key},2026-01-01T00:00:00Z\n" for key in range(30_000))
    error = column_error(path, f"id,username,at\n{good}30000,bob,{time}\n", TIMED)
    assert (error.column, "in row 30000:" in str(error)) == ("at", True)
    kind = errors.ColumnTimeZoneError if time.endswith("1T00:00:00") else errors.ColumnTypeError
    assert type(error) is kind


@pytest.mark.parametrize("integer", [2**63, 2**64, 10**90])
def test_an_integer_that_is_too_large_says_so(path: Path, integer: int) -> None:
    said = "has an integer that is too large in row 1: the largest is 2^63-1, 9223372036854775807"
    assert str(column_error(path, f"id,username\n1,ann\n{integer},bob\n")) == f"the column `id` {said}"
    by_owner = TableColumns("id", [ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "owner")])
    assert str(column_error(path, f"id,username,owner\n1,ann,1\n2,bob,{integer}\n", by_owner)) == f"the column `owner` {said}"
    path.write_text(f"id,username\n1,ann\n{2**63 - 1},bob\n")
    assert csv_table(path, COLUMNS).check() == 2


def test_text_keys_that_are_subjects_are_refused_at_once(path: Path) -> None:
    path.write_text("id,username\n1,ann\n")
    error = raised_by(lambda: csv_table(path, COLUMNS, text_keys=True))
    assert isinstance(error, errors.MisconfiguredError)
    assert str(error).startswith("the column `id` is the key and a subject, whose ids are integers: omit `text_keys`")


def test_subjects_that_are_no_integers_are_named_before_any_warning(
    client: Client, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = pl.DataFrame({"id": ["1"], "username": ["ann"]})
    rows.write_parquet(path)
    for table in (parquet_table(path, COLUMNS), arrow_table(rows, COLUMNS)):
        error = raised_by(lambda table=table: verify_table(client, table, source_type=SourceType.USERS))  # type: ignore[misc]
        assert isinstance(error, errors.ColumnTypeError)
        assert str(error).startswith("the column `id` has the ids of subjects, so it must contain integers, not `")
    assert caplog.text == ""


def test_a_row_with_other_fields_than_the_header_is_named(path: Path) -> None:
    path.write_text("id,username\n1,ann\n2,bob,secret\n")
    error = raised_by(csv_table(path, COLUMNS).check)
    assert (error.code, "in row 1:" in str(error), "secret" in str(error)) == ("INVALID_ROWS", True, False)


@pytest.mark.parametrize("text_keys", [False, True])
def test_a_file_that_ends_within_quotes_is_refused(client: Client, path: Path, text_keys: bool) -> None:
    claim = ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "owner")
    path.touch()
    table = csv_table(path, TableColumns("id", [claim]), text_keys=text_keys)
    long = "".join(f"{key:05},{'x' * 50}{key},1,a\n" for key in range(30_000))
    for cut, row in [
        ('1,u1,1,a\n2,"secret', 1),
        ('1,u1,1,a\n2,"secret,1,a\n', 1),
        ('1,u1,1,a\n2,u2,1,"secret', 1),
        ('1,u1,1,a\n2,u2,1,"secret\n3,u3,1,\n', 1),
        ('1,u1,1,a\n2,u2,1,"secret""', 1),
        ('1,u1,1,"', 0),
        (f'{long}30000,u,1,"secret', 30_000),
    ]:
        path.write_text(f"id,username,owner,note\n{cut}")
        error = raised_by(table.check)
        assert (error.code, "secret" in str(error), f"in row {row}:" in str(error)) == ("INVALID_ROWS", False, True)
    # The last row of a cut file may be a part of a row, so no page with it is compared.
    path.write_text('id,username,owner,note\n1,u1,1,a\n2,u2,1,"secret')
    partial: list[VerificationResult] = []
    options: dict[str, Any] = {"rows_per_page": 1, "recent_within_seconds": 0, "on_failure": partial.append}
    assert raised_by(lambda: verify_table(client, table, source_type=SourceType.USERS, **options)).code == "INVALID_ROWS"
    assert all(found.report.rows <= 1 for found in partial)


def test_a_header_that_ends_within_quotes_is_refused(path: Path) -> None:
    path.write_text('id,"username')
    assert "is not a valid CSV file in its header:" in str(raised_by(csv_table(path, COLUMNS).check))


@pytest.mark.parametrize("last", ["2,bob,2", '2,"bob",2', '2,"""bob""","2"', '2,b"ob,2', '2,"b\nob",2', '2,"",2', "2,,"])
def test_a_file_that_ends_after_a_row_is_complete(path: Path, last: str) -> None:
    columns = TableColumns("id", [ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "owner")])
    for end in ("", "\n", "\r\n", "\n\n", "\r"):
        path.write_bytes(f"id,username,owner\n1,ann,1\n{last}{end}".encode())
        for text_keys in (False, True):
            assert csv_table(path, columns, text_keys=text_keys).check() == 2


OLD = [
    "2026-01-01T00:00:00.000000000+0000",
    "2026-01-01T00:00:00.123456789Z",
    "2026-01-01 00:00:00.1+00",
    "2026-01-01 00:00:00+05:30",
    "2026-01-01 00:00:00 UTC",
    "-infinity",
    "0044-03-15 00:00:00 BC",
    "1883-11-18 00:00:00-04:56:02",
]
FUTURE = ["infinity", "12000-01-01 00:00:00+00", "+12000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"]


@pytest.mark.parametrize("time", [*OLD, *FUTURE])
def test_v02_times_in_every_common_form_are_read(client: Client, path: Path, time: str) -> None:
    path.write_text(f"id,username,at\n1,ann,{time}\n2,bob,\n")
    report = verify_table(client, csv_table(path, TIMED), source_type=SourceType.USERS).report
    assert (report.rows, report.rows_recent) == (2, int(time in FUTURE))


@pytest.mark.parametrize("time", ["infinity", "-infinity", "2026-01-01 00:00:00.000000000", "0044-03-15 00:00:00 BC"])
def test_v02_times_in_utc_need_no_zone(path: Path, time: str) -> None:
    path.write_text(f"id,username,at\n1,ann,{time}\n")
    assert csv_table(path, replace(TIMED, assume_utc=True)).check() == 1


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_file_that_polars_writes_is_read(path: Path, unit: pl._typing.TimeUnit) -> None:
    times = pl.Series([LONG_AGO]).dt.cast_time_unit(unit)
    pl.DataFrame({"id": [1], "username": ["ann"], "at": times}).write_csv(path)
    assert csv_table(path, TIMED).check() == 1


@pytest.mark.parametrize("text", ["id,username", "id,username\n", "id,username\r\n\r\n", "\ufeffid,username"])
def test_a_file_with_a_header_only_has_no_rows(path: Path, text: str) -> None:
    path.write_text(text)
    assert csv_table(path, COLUMNS).check() == 0


@pytest.mark.parametrize("marker", ["NULL", "\\N", "null", "NaN", "NA", "None"])
def test_a_text_for_null_is_refused_until_the_caller_decides(client: Client, path: Path, marker: str) -> None:
    error = column_error(path, f"id,username\n1,ann\n2,{marker}\n")
    assert (error.code, error.column, f"`{marker}` in row 1:" in str(error)) == ("COLUMN_VALUE", "username", True)

    def claims(*null_values: str) -> int:
        table = csv_table(path, COLUMNS, null_values=null_values)
        return verify_table(client, table, source_type=SourceType.USERS).report.claims

    assert (claims(), claims(marker), claims("other")) == (2, 1, 2)
    path.write_text(f'id,username\n1,"{marker}"\n2,\n')
    assert claims(marker) == 1


def test_a_missing_column_lists_the_columns_of_the_file(path: Path) -> None:
    error = column_error(path, "id,user_name,note\n1,ann,\n")
    assert str(error) == "the column `username` is missing: the table has the columns `id`, `user_name`, `note`"
    assert str(column_error(path, "")) == "the column `id` is missing: the table has no columns"
