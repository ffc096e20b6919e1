"""Times of Python's, and the microseconds since 1970 that the engine counts in."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_START = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def micros(time: datetime) -> int:
    """Return microseconds since 1970.

    Parameters
    ----------
    time : datetime
        A time with a time zone.

    Returns
    -------
    int
        Microseconds, rounded to none.

    Raises
    ------
    ValueError
        The time has no time zone, so that nobody knows which moment it is.
    """
    if time.tzinfo is None:
        raise ValueError("the time has no time zone: use `datetime.now(timezone.utc)`, for example")
    return (time - _START) // _MICROSECOND


def at(micros_since_1970: int) -> datetime:
    """Return the time at so many microseconds since 1970, in UTC."""
    return _START + micros_since_1970 * _MICROSECOND


def now() -> datetime:
    """Return the time of this machine's clock, in UTC."""
    return datetime.now(timezone.utc)


def span(seconds: float) -> int:
    """Return a span of seconds in microseconds."""
    return round(seconds * 1_000_000)
