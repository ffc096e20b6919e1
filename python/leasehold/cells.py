"""What a server says of cells, and of who holds what."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.claims import Bucket, Record


@dataclass(frozen=True)
class Cell:
    """A cell, as the server's configuration knows it.

    Attributes
    ----------
    id : int
        Its number.
    name : str
        What people call it.
    address : str
        Where its requests are sent.
    session_prefix : str
        What it puts in front of its session identifiers.
    min_id, max_id : int or None
        The database ids that it may hand out, both included; None where nothing is said.
    """

    id: int
    name: str
    address: str
    session_prefix: str
    min_id: int | None
    max_id: int | None


@dataclass(frozen=True)
class FoundRecord:
    """One record, and who holds it.

    Attributes
    ----------
    record : Record
        The record.
    cell : Cell or None
        The cell; None where the server's configuration has it no more.
    """

    record: Record
    cell: Cell | None


@dataclass(frozen=True)
class Classification:
    """Where a request belongs.

    Attributes
    ----------
    address : str
        The cell's.
    matched : Bucket or None
        The bucket that decided, where one did.
    """

    address: str
    matched: Bucket | None
