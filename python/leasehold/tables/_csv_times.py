"""Times in CSV files, as databases, data frames and Ruby write them."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.errors import ColumnError, column_error

# Times outside the range of `datetime`, and their zones of local mean time, become 1970 or 9999, as in a table of PostgreSQL
# (`leasehold.tables.postgres`). The engine compares times with thresholds of the present only.
_BEFORE_1970 = r"^(-infinity|-\d+-\d\d-\d\d.*|(0\d|1[0-8]|19[0-6])\d{1,2}-\d\d-\d\d[T0-9:.+\-Z ]*|\d{4,}-\d\d-\d\d.* BC)$"
_AFTER_9999 = r"^(infinity|\+?\d{5,}-\d\d-\d\d[T0-9:.+\-Z ]*)$"
_EARLY, _LATE = "1970-01-01T00:00:00", "9999-12-30T00:00:00"

# pyarrow refuses more digits than its unit has, and the zone that Ruby's `Time#to_s` writes.
_BEYOND_MICROSECONDS = r"(\.\d{6})\d+"
_NAMED_UTC = r" (UTC|GMT)$"

_ZONE = re.compile(r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$")


def parse(texts: pa.Array, time_type: pa.TimestampType, column: str, first: int) -> pa.Array:
    """Return the times that a column's texts describe. The first text is in row `first` of the table.

    Raises
    ------
    ColumnError
        A text is not a time, or has no zone although the type has one, or the reverse.
    """
    zone = "" if time_type.tz is None else "Z"
    for pattern, text in (
        (_NAMED_UTC, "Z"),
        (_BEYOND_MICROSECONDS, r"\1"),
        (_BEFORE_1970, _EARLY + zone),
        (_AFTER_9999, _LATE + zone),
    ):
        texts = pc.replace_substring_regex(texts, pattern, text)
    try:
        return texts.cast(time_type)
    except pa.ArrowInvalid:
        raise _error(texts, time_type, column, first) from None


def _error(texts: pa.Array, time_type: pa.TimestampType, column: str, first: int) -> ColumnError:
    row = next(row for row, text in enumerate(texts) if not _is_time(text, time_type))
    where = f"in row {first + row}"
    has_zone = _ZONE.search(texts[row].as_py()) is not None
    if has_zone and time_type.tz is None:
        return column_error("COLUMN_TIME_ZONE", column, f"the column `{column}` has a time zone {where}: omit `assume_utc`")
    if not has_zone and time_type.tz is not None and _is_time(texts[row], pa.timestamp("us")):
        advice = "add one to all times, or set `assume_utc=True` if they are UTC"
        return column_error("COLUMN_TIME_ZONE", column, f"the column `{column}` has no time zone {where}: {advice}")
    return column_error(
        "COLUMN_TYPE", column, f"the column `{column}` has a value that is no time {where}: write it as 2026-01-31T12:00:00Z"
    )


def _is_time(text: pa.Scalar, time_type: pa.TimestampType) -> bool:
    try:
        text.cast(time_type)
    except pa.ArrowInvalid:
        return False
    return True
