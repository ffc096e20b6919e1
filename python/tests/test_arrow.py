"""Tests of rows that come from tables of several libraries through the Arrow stream interface."""

from __future__ import annotations

import decimal
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.claims import apply

import leasehold
from leasehold import BucketType, Claim, ColumnError, SourceType, SubjectType, verification
from leasehold.tables.files import arrow_table
from leasehold.verification import ArrowRows, ArrowStream, ClaimColumns, TableColumns

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
OLD = NOW - timedelta(days=7)
USERNAME = ClaimColumns(BucketType.USERNAMES, "name", SubjectType.USER, "id")
USER_ID = ClaimColumns(BucketType.USER_IDS, "id", SubjectType.USER, "id")
COLUMNS = TableColumns(key="id", claims=[USERNAME, USER_ID], updated_at="at")


def table(ids: list[int] | None = None, names: list[str | None] | None = None) -> pa.Table:
    ids = [1, 2, 300] if ids is None else ids
    names = ["Alice", None, "größe"] if names is None else names
    return pa.table({"id": ids, "name": names, "at": pa.array([OLD] * len(ids), pa.timestamp("us", "UTC")), "other": ids})


def session(rows_per_page: int = 1000, recent_within_seconds: float = 3600) -> verification.Verification:
    return verification.Verification(
        source_type=SourceType.USERS,
        bucket_types=[BucketType.USERNAMES, BucketType.USER_IDS, BucketType.EMAILS],
        recent_within_seconds=recent_within_seconds,
        rows_per_page=rows_per_page,
    )


def to_rows(run: verification.Verification, bound: bytes | None = None) -> verification.Verification:
    """Answer the steps of a verification run before `ReadRows`; the service has no records."""
    run.bound(bound)
    run.records(leasehold.RecordPage((), False, NOW))
    return run


def created(rows: ArrowRows, run: verification.Verification) -> list[Claim]:
    """Drive a verification run to its end. Return the claims that it creates."""
    claims: list[Claim] = []
    while not isinstance(step := run.step(), verification.Done):
        match step:
            case verification.FindBound(after=after, rows=count):
                run.bound(rows.bound(after, count))
            case verification.ListRecords():
                run.records(leasehold.RecordPage((), False, NOW))
            case verification.ReadRows():
                run.arrow_rows(rows, now=NOW)
            case verification.Begin(creates=creates):
                claims += creates
                run.begun()
            case verification.ReadAgain():
                run.unchanged()
            case verification.Commit():
                run.settled()
            case _:
                run.proceed()
    return claims


def values(claims: list[Claim]) -> list[str]:
    return [claim.bucket_value for claim in claims]


def is_unchanged(run: verification.Verification) -> bool:
    return isinstance(run.step(), verification.ReadRows) and run.report() == to_rows(session()).report()


LIBRARIES: dict[str, Callable[[], Any]] = {
    "pyarrow": table,
    "pyarrow, a reader": lambda: table().to_reader(max_chunksize=1),
    "polars": lambda: pl.DataFrame(table()),
    "pandas": lambda: pd.DataFrame(table().to_pandas()),
    "duckdb": lambda: duckdb.connect().from_arrow(table()),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_tables_of_every_library_are_read(library: str) -> None:
    claims = created(ArrowRows(LIBRARIES[library](), COLUMNS), session())
    assert values(claims) == ["Alice", "1", "2", "größe", "300"]
    assert claims[3].subject == leasehold.Subject(SubjectType.USER, 300)
    assert claims[3].source == leasehold.Source(SourceType.USERS, leasehold.encode_source_id(300))


@pytest.mark.parametrize("library", LIBRARIES)
def test_v02_recent_rows_are_skipped(library: str) -> None:
    run = session(recent_within_seconds=8 * 86_400)
    assert created(ArrowRows(LIBRARIES[library](), COLUMNS), run) == []
    assert run.report().rows_recent == 3


@pytest.mark.parametrize("chunk", [1, 2, 7, 100])
@pytest.mark.parametrize("page", [1, 3, 7, 99, 100, 101])
def test_page_and_batch_sizes_are_independent(chunk: int, page: int) -> None:
    whole = table([*range(100)], [f"name{at}" for at in range(100)])
    run = session(rows_per_page=page)
    claims = created(ArrowRows(whole.to_reader(max_chunksize=chunk), COLUMNS), run)
    names = [value for value in values(claims) if value.startswith("name")]
    # A subject's id must be at least 1, so the two claims of row 0 count as invalid.
    assert sorted(names) == sorted(f"name{at}" for at in range(1, 100))
    assert (run.report().rows, run.report().invalid) == (100, 2)


def test_record_pages_may_end_before_row_pages() -> None:
    count = 1500
    whole = table([*range(1, count + 1)], [f"name{at}" for at in range(1, count + 1)])
    service = leasehold.ClaimsService(clock=lambda: OLD)
    claims = created(ArrowRows(whole, COLUMNS), session())
    for start in range(0, 2 * count, 2000):
        service.commit(1, service.begin(1, claims[start : start + 2000]).uuid)
    run, rows = session(rows_per_page=2000), ArrowRows(whole.to_reader(max_chunksize=700), COLUMNS)
    cuts = 0
    while not isinstance(step := run.step(), verification.Done):
        match step:
            case verification.FindBound(after=after, rows=wanted):
                run.bound(rows.bound(after, wanted))
            case verification.ListRecords(after=after, upto=upto):
                page = service.list_records(1, SourceType.USERS, after=after, upto=upto)
                cuts += page.truncated
                run.records(leasehold.RecordPage(page.records, page.truncated, NOW))
            case verification.ReadRows():
                run.arrow_rows(rows, now=NOW)
            case _:
                run.proceed()
    report = run.report()
    assert cuts == 2
    assert (report.rows, report.records, report.updates) == (count, 2 * count, 0)


def ten() -> pa.Table:
    return table([*range(1, 11)], [f"name{at}" for at in range(1, 11)])


def to_second_scan(rows: ArrowRows) -> verification.Verification:
    """Read rows 1 to 10 to their end. Return another run that starts with a second scan of rows 3 to 4 and 8 to 9."""
    assert len(created(rows, session(rows_per_page=4))) == 10
    spans = [{"after": leasehold.encode_source_id(at).hex(), "upto": leasehold.encode_source_id(at + 2).hex()} for at in (2, 7)]
    return verification.Verification(
        source_type=SourceType.USERS,
        bucket_types=[BucketType.USERNAMES],
        recent_within_seconds=3600,
        checkpoint=json.dumps({"scan": "finished", "takes": [], "frees": [], "again": spans}),
    )


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_v05_a_second_scan_reads_the_rows_again(chunk: int) -> None:
    whole = pa.Table.from_batches(ten().to_batches(max_chunksize=chunk))
    rows = ArrowRows(whole, TableColumns("id", [USERNAME]))
    assert values(created(rows, to_second_scan(rows))) == ["name3", "name4", "name8", "name9"]


def test_v05_a_second_scan_of_a_stream_that_reads_once_raises() -> None:
    rows = ArrowRows(ten().to_reader(max_chunksize=3), TableColumns("id", [USERNAME]))
    run = to_second_scan(rows)
    for _ in range(2):
        with pytest.raises(leasehold.RowsError, match="only once"):
            rows.bound(leasehold.encode_source_id(2), 1000)
    to_rows(run)
    with pytest.raises(leasehold.RowsError, match="only once"):
        run.arrow_rows(rows, now=NOW)
    assert isinstance(run.step(), verification.ReadRows)


def test_v07_a_stream_skips_the_rows_before_the_checkpoint() -> None:
    whole = ten()
    first, rows = session(rows_per_page=4), ArrowRows(whole, COLUMNS)
    first.bound(rows.bound(b"", 4))
    first.records(leasehold.RecordPage((), False, NOW))
    first.arrow_rows(rows, now=NOW)
    while isinstance(first.step(), verification.Begin):
        apply(first)
    first.stop()
    while isinstance(first.step(), verification.Begin):
        apply(first)
    checkpoint = first.checkpoint()
    assert checkpoint is not None
    second = verification.Verification(
        source_type=SourceType.USERS,
        bucket_types=[BucketType.USERNAMES, BucketType.USER_IDS],
        recent_within_seconds=3600,
        rows_per_page=4,
        checkpoint=checkpoint,
    )
    left = [value for value in values(created(ArrowRows(whole.to_reader(max_chunksize=3), COLUMNS), second)) if "n" in value]
    assert left == [f"name{at}" for at in range(5, 11)]


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
UNITS: list[Literal["s", "ms", "us", "ns"]] = ["s", "ms", "us", "ns"]


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_integers_of_every_width_are_read(kind: pa.DataType) -> None:
    data = table([1, 2, 100]).set_column(0, "id", pa.array([1, 2, 100], kind))
    assert values(created(ArrowRows(data, COLUMNS), session())) == ["Alice", "1", "2", "größe", "100"]


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_strings_of_every_layout_are_read(kind: pa.DataType) -> None:
    data = pa.table({"key": pa.array(["a", "b"], kind), "name": pa.array(["x", "y"], kind), "id": [1, 2]})
    claims = created(ArrowRows(data, TableColumns("key", [USERNAME])), session())
    assert [claim.source.id for claim in claims if claim.source] == [b"a", b"b"]
    assert values(claims) == ["x", "y"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(16)], ids=str)
def test_binary_keys_are_used_as_encoded_keys(kind: pa.DataType) -> None:
    keys = sorted(uuid.uuid4().bytes for _ in range(3))
    data = pa.table({"key": pa.array(keys, kind), "name": ["x", "y", "z"], "id": [1, 2, 3]})
    claims = created(ArrowRows(data, TableColumns("key", [USERNAME])), session())
    assert [claim.source.id for claim in claims if claim.source] == keys


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_times_of_every_unit_and_time_zone_are_read(unit: Literal["s", "ms", "us", "ns"], zone: str) -> None:
    at = [NOW - timedelta(seconds=10), NOW - timedelta(seconds=30), None]
    data = table([1, 2, 3]).set_column(2, "at", pa.array(at, pa.timestamp(unit, zone)))
    run = session(recent_within_seconds=20)
    # The time of the third row's last change is unknown, so the row does not count as recent.
    assert values(created(ArrowRows(data, COLUMNS), run)) == ["2", "größe", "3"]
    assert run.report().rows_recent == 1


def replaced(name: str, values: pa.Array) -> pa.Table:
    data = table()
    return data.set_column(data.column_names.index(name), name, values)


NAIVE = pa.array([OLD.replace(tzinfo=None)] * 3, pa.timestamp("us"))
BAD_SCHEMAS: dict[str, tuple[Any, str, str]] = {
    "no key": (table().drop_columns("id"), "id", "COLUMN_MISSING"),
    "no value": (table().drop_columns("name"), "name", "COLUMN_MISSING"),
    "no time": (table().drop_columns("at"), "at", "COLUMN_MISSING"),
    "two of a name": (table().append_column("name", pa.array(["a", "b", "c"])), "name", "COLUMN_MISSING"),
    "a key that is a float": (replaced("id", pa.array([1.0, 2.0, 3.0])), "id", "COLUMN_TYPE"),
    "a key that is a decimal": (replaced("id", pa.array([decimal.Decimal(1)] * 3)), "id", "COLUMN_TYPE"),
    "a value that is bytes": (replaced("name", pa.array([b"a", b"b", b"c"])), "name", "COLUMN_TYPE"),
    "a value that is a list": (replaced("name", pa.array([["a"]] * 3)), "name", "COLUMN_TYPE"),
    "a value that is a category of dates": (
        replaced("name", pa.array([OLD.date()] * 3).dictionary_encode()),
        "name",
        "COLUMN_TYPE",
    ),
    "a time that is a date": (replaced("at", pa.array([OLD.date()] * 3)), "at", "COLUMN_TYPE"),
    "a time that is a text": (replaced("at", pa.array(["2026-01-01"] * 3)), "at", "COLUMN_TYPE"),
    "a time without a zone": (replaced("at", NAIVE), "at", "COLUMN_TIME_ZONE"),
}


@pytest.mark.parametrize("case", BAD_SCHEMAS)
def test_unreadable_columns_are_named_before_any_row_is_read(case: str) -> None:
    data, column, code = BAD_SCHEMAS[case]
    with pytest.raises(ColumnError) as caught:
        ArrowRows(data, COLUMNS)
    assert (caught.value.column, caught.value.code) == (column, code)
    assert type(caught.value) is leasehold.errors.COLUMN_ERRORS[code]
    assert f"`{column}`" in str(caught.value)


def test_assume_utc_accepts_times_without_a_time_zone() -> None:
    run = session()
    columns = TableColumns("id", [USERNAME], updated_at="at", assume_utc=True)
    assert values(created(ArrowRows(replaced("at", NAIVE), columns), run)) == ["Alice", "größe"]


SUBJECT = [ClaimColumns(BucketType.USERNAMES, "name", SubjectType.USER, "other")]
BAD_VALUES: dict[str, tuple[Any, str, str, str]] = {
    "a key that is null": (replaced("id", pa.array([1, None, 3])), "id", "COLUMN_NULL", "row 1"),
    "a subject that is null": (replaced("other", pa.array([1, 2, None])), "other", "COLUMN_NULL", "row 2"),
    "a key that is negative": (replaced("id", pa.array([-1, 2, 3])), "id", "COLUMN_VALUE", "row 0"),
    "a key that is empty": (replaced("id", pa.array(["", "b", "c"])), "id", "COLUMN_VALUE", "row 0"),
    "a key that is too large": (replaced("id", pa.array([1, 2, 2**64 - 1], pa.uint64())), "id", "COLUMN_VALUE", "63 bits"),
    "disorder": (table([1, 3, 2]), "id", "COLUMN_ORDER", "not in order at row 2"),
    "a key that is there twice": (table([1, 2, 2]), "id", "COLUMN_ORDER", "the same value in row 2 and in the one before it"),
}


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("case", BAD_VALUES)
def test_invalid_values_are_named_and_the_run_is_unchanged(case: str, chunk: int) -> None:
    data, column, code, where = BAD_VALUES[case]
    columns = TableColumns("id", SUBJECT)
    rows = ArrowRows(data.to_reader(max_chunksize=chunk), columns)
    with pytest.raises(ColumnError, match=where) as caught:
        rows.bound(b"", 1000)
    assert (caught.value.column, caught.value.code) == (column, code)
    run = to_rows(session())
    with pytest.raises(ColumnError, match=where):
        run.arrow(data.to_reader(max_chunksize=chunk), columns, now=NOW)
    assert is_unchanged(run)


def test_a_subject_may_be_null_if_its_value_is_null() -> None:
    data = replaced("other", pa.array([1, None, 3]))
    assert values(created(ArrowRows(data, TableColumns("id", SUBJECT)), session())) == ["Alice", "größe"]


def test_invalid_utf_8_is_refused() -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    data = pa.table({"id": [1], "name": broken})
    run = to_rows(session())
    with pytest.raises(leasehold.ColumnValueError, match="`name` is not valid UTF-8 in row 0"):
        run.arrow(data, TableColumns("id", [USERNAME]), now=NOW)
    assert is_unchanged(run)


def test_a_column_of_nulls_only_is_read_as_null() -> None:
    nothing = pa.nulls(3)
    assert values(created(ArrowRows(replaced("name", nothing), COLUMNS), session())) == ["1", "2", "300"]
    assert values(created(ArrowRows(replaced("at", nothing), COLUMNS), session())) == ["Alice", "1", "2", "größe", "300"]
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int8()), pa.nulls(1))
    assert values(created(ArrowRows(replaced("name", dictionary), COLUMNS), session())) == ["1", "2", "300"]
    frame = pd.DataFrame({"id": [1, 2], "name": [None, None]})
    assert created(ArrowRows(frame, TableColumns("id", [USERNAME])), session()) == []
    for column, columns in (("id", COLUMNS), ("other", TableColumns("id", SUBJECT))):
        with pytest.raises(leasehold.ColumnNullError, match=f"`{column}` is null in row 0"):
            ArrowRows(replaced(column, nothing), columns).bound(b"", 1)


def test_a_missing_column_lists_the_columns_of_the_table() -> None:
    wrong = TableColumns("id", [ClaimColumns(BucketType.USERNAMES, "username", SubjectType.USER, "id")])
    with pytest.raises(leasehold.ColumnMissingError, match=r"the table has the columns `id`, `name`, `at`, `other`$"):
        ArrowRows(table(), wrong)
    wide = pa.table({f"c{at}": [1] for at in range(60)})
    with pytest.raises(leasehold.ColumnMissingError, match=r"the columns `c0`, .*`c19` and 40 more$"):
        ArrowRows(wide, wrong)
    with pytest.raises(leasehold.ColumnMissingError, match=r"the table has no columns$"):
        ArrowRows(pa.table({}), wrong)


UNCONVERTIBLE: dict[str, tuple[list[object], type[leasehold.LeaseholdError], str]] = {
    "texts and numbers": (["secret", 1.5], leasehold.ColumnTypeError, "`name` mixes types"),
    "objects": ([object(), "secret"], leasehold.ColumnTypeError, "`name` mixes types"),
    "a lone surrogate": (["secret\ud800", "b"], leasehold.RowsError, "surrogate"),
    "a large integer": ([2**63, 1, "secret"], leasehold.RowsError, "mixes types|out of range"),
}


@pytest.mark.parametrize("case", UNCONVERTIBLE)
def test_v09_values_that_have_no_arrow_type_raise_an_error_without_them(case: str) -> None:
    names, kind, words = UNCONVERTIBLE[case]
    frame = pd.DataFrame({"id": range(len(names)), "name": pd.Series(names, dtype=object)})
    columns = TableColumns("id", [USERNAME])
    for call in (
        lambda: ArrowRows(frame, columns),
        lambda: to_rows(session()).arrow(frame, columns, now=NOW),
        lambda: arrow_table(frame, columns),
    ):
        with pytest.raises(kind, match=words) as caught:
            call()
        assert "secret" not in str(caught.value)


def test_a_bucket_type_outside_the_run_is_refused() -> None:
    run = to_rows(session())
    routes = ClaimColumns(BucketType.ROUTES, "name", SubjectType.USER, "id")
    with pytest.raises(leasehold.RowsError, match="bucket_types"):
        run.arrow(table(), TableColumns("id", [routes]), now=NOW)
    assert is_unchanged(run)


def test_refused_rows_stay_in_the_stream() -> None:
    rows = ArrowRows(table(), COLUMNS)
    run = verification.Verification(source_type=SourceType.USERS, bucket_types=[BucketType.EMAILS], recent_within_seconds=3600)
    to_rows(run, rows.bound(b"", 1000))
    with pytest.raises(leasehold.RowsError):
        run.arrow_rows(rows, now=NOW)
    assert values(created(rows, session())) == ["Alice", "1", "2", "größe", "300"]


def test_a_failed_stream_raises_with_its_own_message() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield table().to_batches()[0]
        raise OSError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(table().schema, batches())
    with pytest.raises(leasehold.RowsError, match=r"^the stream cannot be read: .*the disk is gone$"):
        ArrowRows(reader, COLUMNS).bound(b"", 1000)


@pytest.mark.parametrize("data", [[{"id": 1}], None, pa.array([1, 2]), "id"], ids=str)
def test_data_that_is_not_a_table_raises_a_type_error(data: ArrowStream) -> None:
    with pytest.raises(TypeError, match=r"Arrow stream|not a table|struct"):
        ArrowRows(data, COLUMNS)


def test_arrow_rows_answer_read_rows_only() -> None:
    run, rows = session(), ArrowRows(table(), COLUMNS)
    with pytest.raises(leasehold.OutOfTurnError, match="answers `ReadRows` only"):
        run.arrow_rows(rows, now=NOW)
    assert isinstance(run.step(), verification.FindBound)


def test_a_batch_that_contradicts_its_schema_raises_a_rows_error() -> None:
    batch = table().to_batches()[0]
    narrow = batch.select(["id", "name", "at"])
    rows = ArrowRows(pa.RecordBatchReader.from_batches(narrow.schema, iter([batch])), COLUMNS)
    with pytest.raises(leasehold.RowsError, match="other columns"):
        rows.bound(b"", 10)
    reader = pa.RecordBatchReader.from_batches(narrow.schema, iter([batch]))
    with pytest.raises(leasehold.RowsError, match="other columns"):
        to_rows(session()).arrow(reader, COLUMNS, now=NOW)
