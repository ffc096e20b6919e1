"""Keys of rows as people write them, decoded from the source ids of claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias
from uuid import UUID

Key: TypeAlias = int | str | UUID | bytes
"""A key of a row: a number, a text or a UUID; bytes if it is none of these."""

INTEGERS, UUIDS, TEXTS, BYTES = "integers", "UUIDs", "texts", "bytes"

# The length of encoded keys, for the kinds that have a fixed one.
ENCODED_BYTES = {INTEGERS: 8, UUIDS: 16}


def decode_key(source_id: bytes, kind: str) -> Key:
    """Return the key that encodes to a source id, in a table with keys of this kind.

    The service may have claims under keys of another kind than the table's. The kinds look different: the bytes of a
    number below 2**61 contain a control character, and those of a random UUID are hardly ever readable text.
    """
    if len(source_id) == ENCODED_BYTES[INTEGERS] and (kind == INTEGERS or not _is_readable(source_id)):
        return int.from_bytes(source_id, "big")
    if len(source_id) == ENCODED_BYTES[UUIDS] and (kind == UUIDS or not _is_readable(source_id)):
        return UUID(bytes=source_id)
    return source_id.decode() if _is_readable(source_id) else source_id


def kind_of(source_id: bytes, kind: str) -> str:
    """Return the kind of key that a source id looks like, in a table with keys of this kind."""
    match decode_key(source_id, kind):
        case int():
            return INTEGERS
        case UUID():
            return UUIDS
        case str():
            return TEXTS
        case _:
            return BYTES


def is_of_kind(source_id: bytes, kind: str) -> bool:
    """Return True if a key of this kind can have the source id."""
    # A text in the form of a UUID is encoded as that UUID.
    return kind in (BYTES, kind_of(source_id, kind)) or (kind, kind_of(source_id, kind)) == (TEXTS, UUIDS)


def decode_text_keys(ids: Iterable[bytes]) -> tuple[list[str], list[str]]:
    """Return the strings that encode to these keys: the keys decoded as text, and the keys as UUIDs in lower case.

    A key of 16 bytes can be a string of 16 bytes or a UUID in text form, so both lists contain it.
    """
    ids = list(ids)
    uuids = [str(UUID(bytes=key)) for key in ids if len(key) == ENCODED_BYTES[UUIDS]]
    return [key.decode(errors="replace") for key in ids], uuids


def _is_readable(source_id: bytes) -> bool:
    try:
        return source_id.decode().isprintable()
    except UnicodeDecodeError:
        return False
