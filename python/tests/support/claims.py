"""Claims for tests, and answers to the steps of a verification run."""

from __future__ import annotations

from collections.abc import Callable

from leasehold import BucketType, Claim, Source, SourceType, Subject, SubjectType, encode_source_id
from leasehold.claims import Bucket
from leasehold.errors import LeaseholdError
from leasehold.verification import Verification


def username(name: str, key: int = 7) -> Claim:
    """Return a claim of the username `name` by the user whose row has the primary key `key`."""
    subject, source = Subject(SubjectType.USER, key), Source(SourceType.USERS, encode_source_id(key))
    return Claim(BucketType.USERNAMES, name, subject, source)


def bucket(name: str) -> Bucket:
    """Return the bucket of the username `name`."""
    return Bucket(BucketType.USERNAMES, name)


def apply(run: Verification) -> None:
    """Answer the steps `Begin`, `ReadAgain` and `Commit` of a verification run whose rows do not change."""
    run.begun()
    run.unchanged()
    run.settled()


def raised_by(call: Callable[[], object]) -> LeaseholdError:
    """Return the `LeaseholdError` that a call raises."""
    try:
        call()
    except LeaseholdError as error:
        return error
    raise AssertionError("the call raised no error")
