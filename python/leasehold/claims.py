"""What is claimed, for whom, and out of which row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from typing_extensions import Self

from leasehold import _native
from leasehold.times import micros


class BucketType(IntEnum):
    """The kinds of names, by their numbers on the wire."""

    ROUTES = 1
    ORGANIZATION_PATH = 2
    REDIRECT_ROUTES = 3
    USERNAMES = 4
    EMAILS = 5
    PROJECT_IDS = 6
    NAMESPACE_IDS = 7
    GPG_KEYS = 8
    SSH_KEYS = 9
    USER_IDS = 10
    ORGANIZATION_IDS = 11
    SERVICE_DESK_CUSTOM_EMAILS = 12
    GPG_KEY_FINGERPRINTS = 13
    SSH_KEY_FINGERPRINTS = 15
    SNIPPET_IDS = 16
    PAGES_DOMAINS = 17
    PAGES_UNIQUE_DOMAINS = 18


class SubjectType(IntEnum):
    """The kinds of whom a claim can be for, by their numbers on the wire."""

    ORGANIZATION = 1
    NAMESPACE = 2
    PROJECT = 3
    USER = 4


class SourceType(IntEnum):
    """The tables that claims come out of, by their numbers on the wire."""

    USERS = 1
    EMAILS = 2
    ROUTES = 3
    PROJECTS = 4
    NAMESPACES = 5
    ORGANIZATIONS = 6
    REDIRECT_ROUTES = 7
    GPG_KEYS = 8
    KEYS = 9
    SERVICE_DESK_SETTINGS = 10
    MEMBERS = 11
    SNIPPETS = 12
    PAGES_DOMAINS = 13
    PROJECT_SETTINGS = 14


@dataclass(frozen=True)
class Subject:
    """Whom a claim is for.

    Attributes
    ----------
    subject_type : int
        A `SubjectType`.
    id : int
        The id, 1 or more.
    """

    subject_type: int
    id: int


@dataclass(frozen=True)
class Source:
    """The row that a claim comes out of.

    Attributes
    ----------
    source_type : int
        A `SourceType`.
    id : bytes
        The row's primary key, as `encode_source_id` gives it.
    """

    source_type: int
    id: bytes

    @classmethod
    def of(cls, source_type: int, key: int | str) -> Self:
        """Name a row by its primary key.

        Parameters
        ----------
        source_type : int
            A `SourceType`.
        key : int or str
            The key, as `encode_source_id` takes it.

        Raises
        ------
        InvalidError
            The key is negative, empty, or longer than 128 bytes.

        Examples
        --------
        >>> from leasehold import Source, SourceType
        >>> Source.of(SourceType.USERS, 7).id.hex()
        '0000000000000007'
        """
        return cls(source_type, _native.encode_source_id(key))


@dataclass(frozen=True)
class Bucket:
    """What must be unique.

    Attributes
    ----------
    bucket_type : int
        A `BucketType`.
    value : str
        The value, in any spelling.
    """

    bucket_type: int
    value: str


@dataclass(frozen=True)
class UserData:
    """What a cell attaches to a claim and gets back unread.

    Attributes
    ----------
    type_url : str
        Names the type of the value.
    value : bytes
        The value.
    """

    type_url: str
    value: bytes


@dataclass(frozen=True)
class Claim:
    """One claim of an update. A destroy may leave out subject and source.

    Attributes
    ----------
    bucket_type : int
        A `BucketType`.
    bucket_value : str
        The value, as a person gave it.
    subject : Subject or None
        Whom it is for.
    source : Source or None
        The row that it comes out of. A destroy that names one is refused where the claim has moved to another row.
    user_data : UserData or None
        What the cell attaches to it.
    """

    bucket_type: int
    bucket_value: str
    subject: Subject | None = None
    source: Source | None = None
    user_data: UserData | None = None

    @property
    def bucket(self) -> Bucket:
        """What is claimed."""
        return Bucket(self.bucket_type, self.bucket_value)


@dataclass(frozen=True)
class Lease:
    """A begun update.

    Attributes
    ----------
    uuid : str
        Settles it, in the 36-character form.
    fence : int
        Larger than that of every lease before.
    replayed : bool
        Whether an earlier try under the same idempotency key had begun it.
    """

    uuid: str
    fence: int
    replayed: bool = False


@dataclass(frozen=True)
class OutstandingLease:
    """A lease that is begun and not settled.

    Attributes
    ----------
    uuid : str
        The lease.
    created_at, updated_at : datetime
        When it was begun and when it last changed, by the service's clock.
    """

    uuid: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class LeasePage:
    """Some outstanding leases of a cell.

    Attributes
    ----------
    leases : tuple of OutstandingLease
        In the order of their begin.
    cursor : str or None
        Leads to the next page; None on the last one only.
    server_time : datetime
        The service's time when it answered, by which the age of the leases is to be judged.
    """

    leases: tuple[OutstandingLease, ...]
    cursor: str | None
    server_time: datetime


@dataclass(frozen=True)
class Record:
    """What a service knows of a claim.

    Attributes
    ----------
    uuid : str
        Names the claim for as long as the cell keeps the bucket.
    claim : Claim
        The claim, with its subject and its source.
    cell_id : int
        The cell that owns it.
    status : str
        "ACTIVE" at rest, "LEASE_CREATING" or "LEASE_DESTROYING" under a lease.
    lease_uuid : str or None
        The lease that holds it.
    created_at, updated_at : datetime
        When it was begun and when it last changed, by the service's clock.
    """

    uuid: str
    claim: Claim
    cell_id: int
    status: str
    lease_uuid: str | None
    created_at: datetime
    updated_at: datetime

    @property
    def updated_micros(self) -> int:
        """When it last changed, in microseconds since 1970."""
        return micros(self.updated_at)


@dataclass(frozen=True)
class RecordPage:
    """Some records of one table.

    Attributes
    ----------
    records : tuple of Record
        In the order of their source ids.
    truncated : bool
        Whether more remain.
    server_time : datetime
        The service's time when it answered.
    """

    records: tuple[Record, ...]
    truncated: bool
    server_time: datetime
