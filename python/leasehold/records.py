"""What the server says of leases, records and cells."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from leasehold.claims import Bucket, Claim

__all__ = [
    "Cell",
    "Classification",
    "FoundRecord",
    "Lease",
    "LeasePage",
    "OutstandingLease",
    "Record",
    "RecordStatus",
]


class RecordStatus(enum.IntEnum):
    """How a stored record stands."""

    ACTIVE = 1
    LEASE_CREATING = 2
    LEASE_DESTROYING = 3


@dataclass(frozen=True)
class Lease:
    """A begun update: the uuid settles it, the fence is larger than that of every lease before."""

    uuid: str
    fence: int


@dataclass(frozen=True)
class OutstandingLease:
    """A lease that is begun and not settled, as the server lists it."""

    uuid: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class LeasePage:
    """Some outstanding leases, the oldest first.

    Attributes
    ----------
    leases
        In the order of their begins.
    cursor
        Leads to the next page; only where there is none the list has ended.
    server_time
        The server's clock before the leases were read: the one to judge their ages by.
    """

    leases: tuple[OutstandingLease, ...]
    cursor: str | None
    server_time: datetime


@dataclass(frozen=True)
class Record:
    """What a claim holds, as the server shows it.

    Attributes
    ----------
    uuid
        The record's own.
    claim
        What is claimed, in the spelling that was given.
    cell_id
        The cell that holds the claim.
    status
        A `RecordStatus`, or the number of one that this version does not know.
    lease_uuid
        The outstanding lease that the record is part of.
    created_at, updated_at
        By the server's clock.
    """

    uuid: str
    claim: Claim
    cell_id: int
    status: int
    lease_uuid: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class Cell:
    """A cell, as the server's configuration knows it; the ids that it may hand out are a closed range."""

    id: int
    name: str
    address: str
    session_prefix: str
    min_id: int | None
    max_id: int | None


@dataclass(frozen=True)
class FoundRecord:
    """One record and the cell that holds it; no cell where the server's configuration has it no more."""

    record: Record
    cell: Cell | None


@dataclass(frozen=True)
class Classification:
    """Where a request belongs: the cell's address, and the bucket that decided, where one did."""

    address: str
    matched: Bucket | None
