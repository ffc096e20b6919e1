"""Conversions between `datetime` and the engine's integer microseconds since 1970."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def micros(time: datetime) -> int:
    """Return the microseconds from 1970 to a time.

    Parameters
    ----------
    time : datetime
        A time with a time zone.

    Returns
    -------
    int
        Whole microseconds. Integer division avoids the rounding of `datetime.timestamp`, which returns a float.

    Raises
    ------
    ValueError
        The time has no time zone.
    """
    if time.tzinfo is None:
        raise ValueError("the time has no time zone: pass an aware `datetime`, such as `datetime.now(timezone.utc)`")
    return (time - _EPOCH) // _MICROSECOND


def from_micros(micros_since_1970: int) -> datetime:
    """Return the UTC time that is this many microseconds after 1970."""
    return _EPOCH + micros_since_1970 * _MICROSECOND


def now() -> datetime:
    """Return the present time of the local clock, in UTC."""
    return datetime.now(timezone.utc)


def to_micros(seconds: float) -> int:
    """Return a duration in whole microseconds, rounded to the nearest one."""
    return round(seconds * 1_000_000)
