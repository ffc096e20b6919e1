"""Claims as the tests make them."""

from __future__ import annotations

from collections.abc import Callable

from leasehold import BucketType, Claim, Source, SourceType, Subject, SubjectType, encode_source_id
from leasehold.claims import Bucket
from leasehold.errors import LeaseholdError
from leasehold.verification import Verification


def username(name: str, key: int = 7) -> Claim:
    """Claim a username for a user's row."""
    subject, source = Subject(SubjectType.USER, key), Source(SourceType.USERS, encode_source_id(key))
    return Claim(BucketType.USERNAMES, name, subject, source)


def bucket(name: str) -> Bucket:
    """Name a username's bucket."""
    return Bucket(BucketType.USERNAMES, name)


def apply(run: Verification) -> None:
    """Begin and commit an update for rows that nobody changes."""
    run.begun()
    run.unchanged()
    run.settled()


def refusal(call: Callable[[], object]) -> LeaseholdError:
    """Return what a call raises."""
    try:
        call()
    except LeaseholdError as error:
        return error
    raise AssertionError("nothing was refused")
