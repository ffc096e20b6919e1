"""Cells, and the server's answers that contain a cell."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.claims import Bucket, Record


@dataclass(frozen=True)
class Cell:
    """A cell in the server's configuration.

    Attributes
    ----------
    id : int
        The id of the cell.
    name : str
        The display name of the cell.
    address : str
        The address that a router forwards requests to.
    session_prefix : str
        The prefix of the session identifiers that the cell issues.
    min_id, max_id : int or None
        The inclusive range of database ids that the cell may assign; None if the configuration sets no range.
    """

    id: int
    name: str
    address: str
    session_prefix: str
    min_id: int | None
    max_id: int | None


@dataclass(frozen=True)
class FoundRecord:
    """A record together with the cell that owns it.

    Attributes
    ----------
    record : Record
        The record.
    cell : Cell or None
        The owner; None if the server's configuration no longer contains that cell.
    """

    record: Record
    cell: Cell | None


@dataclass(frozen=True)
class Classification:
    """The cell that a request must be forwarded to.

    Attributes
    ----------
    address : str
        The address of the cell.
    matched : Bucket or None
        The first requested bucket that is claimed; None if the request was not classified by a bucket.
    """

    address: str
    matched: Bucket | None
