"""What the engine answers at once."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold import _native
from leasehold.claims import Claim


def canonical_form(bucket_type: int, value: str) -> str:
    """Return the form of a value that decides whether two are the same.

    Parameters
    ----------
    bucket_type : int
        A `BucketType`.
    value : str
        The value, as a person gave it: at most 1,024 bytes of UTF-8.

    Returns
    -------
    str
        The canonical form. The canonical form of a canonical form is itself.

    Raises
    ------
    InvalidError
        The bucket type does not allow the value, or is not known.

    Examples
    --------
    >>> from leasehold import BucketType, canonical_form
    >>> canonical_form(BucketType.USERNAMES, "ＡＬＩＣＥ")
    'alice'
    """
    return _native.canonical_form(bucket_type, value)


def check_batch(creates: Iterable[Claim], destroys: Iterable[Claim] = ()) -> None:
    """Check that an update is one that can be begun.

    Parameters
    ----------
    creates, destroys : iterable of Claim
        The claims to create and to destroy: at most 2,000 together. One bucket in both is a replace.

    Raises
    ------
    InvalidError
        The service would refuse the update before it looks at any other claim; `details` has each claim that offends.

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
    ...     [(one.list, one.position, one.code) for one in error.details]
    [('creates', 1, 'VALUE_NOT_ALLOWED')]
    """
    _native.check_batch(list(creates), list(destroys))


def encode_source_id(key: int | str) -> bytes:
    """Return a row's primary key as the bytes that a claim's source has.

    Parameters
    ----------
    key : int or str
        The key: an integer from 0 to 2**63 - 1, or a text. A text in the 36-character form of a UUID is the UUID.

    Returns
    -------
    bytes
        8 bytes for an integer, 16 for a UUID, a text's own UTF-8: in the order of the keys.

    Raises
    ------
    InvalidError
        The key is negative, empty, or longer than 128 bytes.
    OverflowError
        The integer is larger than a key can be.

    Examples
    --------
    >>> from leasehold import encode_source_id
    >>> encode_source_id(258).hex()
    '0000000000000102'
    """
    return _native.encode_source_id(key)
