"""Claims, leases and records as immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from uuid import UUID

from typing_extensions import Self

from leasehold import _native
from leasehold._arguments import check_integer, checked_key, representable
from leasehold.times import micros


class BucketType(IntEnum):
    """Kinds of unique names. Values are the enum numbers of the wire contract."""

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
    SERVICE_DESK_PROJECT_KEY_ADDRESS_SLUGS = 14
    SSH_KEY_FINGERPRINTS = 15
    SNIPPET_IDS = 16
    PAGES_DOMAINS = 17
    PAGES_UNIQUE_DOMAINS = 18


class SubjectType(IntEnum):
    """Kinds of objects that a claim can belong to. Values are the enum numbers of the wire contract."""

    ORGANIZATION = 1
    NAMESPACE = 2
    PROJECT = 3
    USER = 4


class SourceType(IntEnum):
    """Tables whose rows make claims. Values are the enum numbers of the wire contract."""

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
    JIRA_CONNECT_INSTALLATIONS = 15


@dataclass(frozen=True)
class Subject:
    """The object that a claim belongs to, such as a user or a project.

    Attributes
    ----------
    subject_type : int
        A `SubjectType`.
    id : int
        The id of the object, at least 1.

    Raises
    ------
    InvalidError
        A number is out of range: the id is over 2**63 - 1, or the type over 2**31 - 1.
    TypeError
        A number is a bool.
    """

    subject_type: int
    id: int

    def __post_init__(self) -> None:
        check_integer("subject_type", self.subject_type, 31)
        check_integer("id", self.id, 63)


@dataclass(frozen=True)
class Source:
    """The table row that makes a claim.

    Attributes
    ----------
    source_type : int
        A `SourceType`.
    id : bytes
        The primary key of the row, encoded by `encode_source_id`.
    """

    source_type: int
    id: bytes

    def __post_init__(self) -> None:
        check_integer("source_type", self.source_type, 31)

    @classmethod
    @representable
    def of(cls, source_type: int, key: int | str | UUID) -> Self:
        """Return the source for an unencoded primary key.

        Parameters
        ----------
        source_type : int
            A `SourceType`.
        key : int, str or UUID
            The primary key; see `encode_source_id`.

        Raises
        ------
        InvalidError
            The key is negative, empty, longer than 128 bytes or not valid Unicode, or the integer is over 2**63 - 1.
        TypeError
            The key is of another type, such as a bool.

        Examples
        --------
        >>> from leasehold import Source, SourceType
        >>> Source.of(SourceType.USERS, 7).id.hex()
        '0000000000000007'
        """
        return cls(source_type, _native.encode_source_id(checked_key(key)))


@dataclass(frozen=True)
class Bucket:
    """A type and a value that at most one cell can claim.

    Attributes
    ----------
    bucket_type : int
        A `BucketType`.
    value : str
        The value in any spelling; its canonical form decides.
    """

    bucket_type: int
    value: str

    def __post_init__(self) -> None:
        check_integer("bucket_type", self.bucket_type, 31)


@dataclass(frozen=True)
class UserData:
    """Opaque data that a cell attaches to a claim. The server stores and returns it without reading it.

    Attributes
    ----------
    type_url : str
        The type of the value, as in `google.protobuf.Any`.
    value : bytes
        The serialized value.
    """

    type_url: str
    value: bytes


@dataclass(frozen=True)
class Claim:
    """A claim in an update. A destroy may omit the subject and the source.

    Attributes
    ----------
    bucket_type : int
        A `BucketType`.
    bucket_value : str
        The value as the user entered it. The server keeps this spelling.
    subject : Subject or None
        The object that the claim belongs to.
    source : Source or None
        The row that makes the claim. A destroy with a source fails with `ChangedError` if another row has the claim by now.
    user_data : UserData or None
        Opaque data that the server stores with the claim.
    """

    bucket_type: int
    bucket_value: str
    subject: Subject | None = None
    source: Source | None = None
    user_data: UserData | None = None

    def __post_init__(self) -> None:
        check_integer("bucket_type", self.bucket_type, 31)

    @property
    def bucket(self) -> Bucket:
        """The bucket that this claim claims: its type and value."""
        return Bucket(self.bucket_type, self.bucket_value)


@dataclass(frozen=True)
class Lease:
    """An update that has begun and must be committed or rolled back.

    Attributes
    ----------
    uuid : str
        The id of the lease in the 36-character form. Commit and rollback need it.
    fence : int
        A fencing number, larger than the fence of every earlier lease.
    replayed : bool
        True if an earlier begin with the same idempotency key created the lease.
    """

    uuid: str
    fence: int
    replayed: bool = False


@dataclass(frozen=True)
class OutstandingLease:
    """A lease that is neither committed nor rolled back.

    Attributes
    ----------
    uuid : str
        The id of the lease.
    created_at, updated_at : datetime
        The times of the begin and of the last change, by the service's clock.
    organization_id : int or None
        The organization that the begin named; None if it named none. A `Client` gets None too, because cells' lists
        do not have it: see `leasehold leases`.
    """

    uuid: str
    created_at: datetime
    updated_at: datetime
    organization_id: int | None = None


@dataclass(frozen=True)
class LeasePage:
    """A page of outstanding leases of one cell.

    Attributes
    ----------
    leases : tuple of OutstandingLease
        The leases, oldest first.
    cursor : str or None
        The position of the next page; None only on the last page.
    server_time : datetime
        The service's clock when it answered. Compute the ages of the leases from it, not from a local clock.
    """

    leases: tuple[OutstandingLease, ...]
    cursor: str | None
    server_time: datetime


@dataclass(frozen=True)
class Record:
    """A claim as the service stores it.

    Attributes
    ----------
    uuid : str
        The id of the record. It stays the same until the cell gives the bucket up.
    claim : Claim
        The claim with its subject and source.
    cell_id : int
        The cell that owns it.
    status : str
        "ACTIVE" if no lease holds the claim, else "LEASE_CREATING" or "LEASE_DESTROYING".
    lease_uuid : str or None
        The lease that holds the claim; None if the claim is active.
    created_at, updated_at : datetime
        The times of the begin and of the last change, by the service's clock.
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
        """The time of the record's last change, in microseconds since 1970."""
        return micros(self.updated_at)


@dataclass(frozen=True)
class RecordPage:
    """A page of records of one table.

    Attributes
    ----------
    records : tuple of Record
        The records in the order of their source ids.
    truncated : bool
        True if more records follow.
    server_time : datetime
        The service's clock when it answered.
    """

    records: tuple[Record, ...]
    truncated: bool
    server_time: datetime
