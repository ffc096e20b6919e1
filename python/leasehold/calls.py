"""Pure functions of the claims engine: they need no state and no server."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from leasehold import _native
from leasehold._arguments import check_number, check_text, checked_key, listed, named_claims, representable
from leasehold.claims import Claim


@representable
def canonical_form(bucket_type: int, value: str) -> str:
    """Return the canonical form of a value: two values are the same name if their canonical forms are equal.

    Parameters
    ----------
    bucket_type : int
        A `BucketType`.
    value : str
        The value as the user entered it: at most 1,024 bytes of UTF-8.

    Returns
    -------
    str
        The canonical form. The function is idempotent: a canonical form is its own canonical form.

    Raises
    ------
    InvalidError
        The bucket type does not allow the value, or is unknown; or the value is not valid Unicode.
    TypeError
        The type is no integer, or a bool; or the value is no string.

    Examples
    --------
    >>> from leasehold import BucketType, canonical_form
    >>> canonical_form(BucketType.USERNAMES, "ＡＬＩＣＥ")
    'alice'
    """
    check_number("bucket_type", bucket_type, 31)
    check_text("value", value)
    return _native.canonical_form(bucket_type, value)


@representable
def check_batch(creates: Iterable[Claim], destroys: Iterable[Claim] = ()) -> None:
    """Check the parts of an update that the server validates before it reads any stored claim.

    Parameters
    ----------
    creates, destroys : iterable of Claim
        The claims to create and to destroy: at most 2,000 in total. A bucket in both lists is replaced.

    Raises
    ------
    InvalidError
        The update is invalid. `details` names every invalid claim.
    TypeError
        An item is no claim.

    Examples
    --------
    >>> from leasehold import BucketType, Claim, InvalidError, Source, SourceType, Subject, SubjectType
    >>> from leasehold import check_batch, encode_source_id
    >>> def username(name):
    ...     source = Source(SourceType.USERS, encode_source_id(7))
    ...     return Claim(BucketType.USERNAMES, name, Subject(SubjectType.USER, 7), source)
    >>> check_batch([username("alice")], [username("bob")])
    >>> try:
    ...     check_batch([username("alice"), username("not allowed")])
    ... except InvalidError as error:
    ...     [(detail.list, detail.position, detail.code) for detail in error.details]
    [('creates', 1, 'VALUE_NOT_ALLOWED')]
    """
    claims = {"creates": listed("creates", creates), "destroys": listed("destroys", destroys)}
    with named_claims(**claims):
        _native.check_batch(**claims)


@representable
def encode_source_id(key: int | str | UUID) -> bytes:
    """Return a primary key encoded as the id of a claim's source.

    The encoding keeps the order of the keys: encoded integers, and encoded UUIDs, sort as the keys do.

    Parameters
    ----------
    key : int, str or UUID
        An integer from 0 to 2**63 - 1, a string, or a `uuid.UUID`. A string in the 36-character form of a UUID is encoded
        as that UUID.

    Returns
    -------
    bytes
        8 bytes for an integer, 16 bytes for a UUID, the UTF-8 bytes of any other string.

    Raises
    ------
    InvalidError
        The key is negative, empty, longer than 128 bytes or not valid Unicode, or the integer is over 2**63 - 1.
    TypeError
        The key is of another type, such as a bool.

    Examples
    --------
    >>> from leasehold import encode_source_id
    >>> encode_source_id(258).hex()
    '0000000000000102'
    """
    return _native.encode_source_id(checked_key(key))
