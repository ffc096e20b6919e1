"""Between values and the messages of the wire."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any, Literal

from google.protobuf import any_pb2, timestamp_pb2
from google.protobuf.message import DecodeError

from leasehold._engine_claims import EngineClaims
from leasehold._proto.gitlab.cells.topology_service import cell_info_pb2
from leasehold._proto.gitlab.cells.topology_service.claims.v1 import claim_service_pb2 as service
from leasehold._proto.gitlab.cells.topology_service.claims.v1 import record_pb2
from leasehold._proto.gitlab.cells.topology_service.types.v1 import claim_pb2, uuid_pb2
from leasehold.cells import Cell
from leasehold.claims import (
    Bucket,
    BucketType,
    Claim,
    OutstandingLease,
    Record,
    Source,
    SourceType,
    Subject,
    SubjectType,
    UserData,
)
from leasehold.errors import NUMBERS, LeaseholdError, refusal

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_INVALID = "INVALID_UPDATE"

# Field N of a claim is for bucket type N.
_CLAIM_FIELDS = claim_pb2.Claim.DESCRIPTOR.fields_by_number


def enum(number: int) -> Any:  # noqa: ANN401 - every enumeration has a type of its own
    """Pass a number as the member of a wire's enumeration, which keeps those that it has no name for."""
    return number


def known(names: type[BucketType | SubjectType | SourceType], number: int) -> int:
    """Give a number its name, where this version knows one."""
    try:
        return names(number)
    except ValueError:
        return number


def uuid(value: str) -> uuid_pb2.UUID:
    """Write the name of a lease.

    Raises
    ------
    TypeError
        It is no text.
    """
    if not isinstance(value, str):
        raise TypeError(f"`lease_uuid` is a `{type(value).__name__}`, and no text: pass the `uuid` of a lease, or `str` of it")
    return uuid_pb2.UUID(value=value)


def bucket(value: Bucket) -> record_pb2.Bucket:
    """Write a bucket."""
    return record_pb2.Bucket(type=enum(value.bucket_type), value=value.value)


def encoded(name: Literal["creates", "destroys"], claims: Sequence[Claim]) -> bytes:
    """Write a list of an update, as a `BeginUpdateRequest` of that list alone.

    Raises
    ------
    InvalidError
        A member of a claim does not fit into a message; the claim is named by its position.
    """
    if isinstance(claims, EngineClaims):
        return claims.encoded(name)
    metadata = _metadata_of(name, claims)
    request = (
        service.BeginUpdateRequest(create_records=metadata)
        if name == "creates"
        else service.BeginUpdateRequest(destroy_records=metadata)
    )
    return request.SerializeToString()


def _metadata_of(name: Literal["creates", "destroys"], claims: Sequence[Claim]) -> Iterable[record_pb2.Metadata]:
    for position, claim in enumerate(claims):
        try:
            yield _metadata(claim)
        except (TypeError, ValueError, AttributeError) as error:  # noqa: PERF203 - it has to say where
            raise _misfit(name, position, claim, error) from None


def _misfit(name: Literal["creates", "destroys"], position: int, claim: object, error: Exception) -> LeaseholdError:
    # The error's own words are left out, since they quote the value.
    message = f"`{name}[{position}]`: a member is of the wrong type ({type(error).__name__})"
    bucket_type = getattr(claim, "bucket_type", 0)
    number = bucket_type if isinstance(bucket_type, int) else 0
    return refusal(_INVALID, message, [(name, position, number, _INVALID, NUMBERS[_INVALID], message)])


def _metadata(claim: Claim) -> record_pb2.Metadata:
    subject, source, data = claim.subject, claim.source, claim.user_data
    return record_pb2.Metadata(
        bucket=bucket(claim.bucket),
        subject=None if subject is None else record_pb2.Subject(type=enum(subject.subject_type), id=subject.id),
        source=None if source is None else record_pb2.Source(type=enum(source.source_type), rails_primary_key_id=source.id),
        user_data=None if data is None else any_pb2.Any(type_url=data.type_url, value=data.value),
    )


def _claim(metadata: record_pb2.Metadata) -> Claim:
    data = metadata.user_data
    return Claim(
        bucket_type=known(BucketType, metadata.bucket.type),
        bucket_value=metadata.bucket.value,
        subject=Subject(known(SubjectType, metadata.subject.type), metadata.subject.id),
        source=Source(known(SourceType, metadata.source.type), metadata.source.rails_primary_key_id),
        user_data=UserData(data.type_url, data.value) if metadata.HasField("user_data") else None,
    )


def wire_claim(value: Bucket) -> claim_pb2.Claim:
    """Write a bucket as classification takes it.

    Raises
    ------
    InvalidError
        The contract has no claim of this type, or an id is not an integer.
    """
    field = _CLAIM_FIELDS.get(value.bucket_type)
    if field is None:
        raise _unclassifiable(f"a request cannot be classified by the bucket type {int(value.bucket_type)}")
    is_integer = field.cpp_type == field.CPPTYPE_INT64
    claim = claim_pb2.Claim()
    try:
        setattr(claim, field.name, int(value.value, 10) if is_integer else value.value)
    except (TypeError, ValueError):
        raise _unclassifiable(f"the value of a `{field.name}` is not {'an integer' if is_integer else 'a text'}") from None
    return claim


def _unclassifiable(message: str) -> LeaseholdError:
    return refusal(_INVALID, message)


def matched(claim: claim_pb2.Claim) -> Bucket | None:
    """Read the claim that decided."""
    name = claim.WhichOneof("claim")
    if name is None:
        return None
    number = claim_pb2.Claim.DESCRIPTOR.fields_by_name[name].number
    return Bucket(known(BucketType, number), str(getattr(claim, name)))


def record(message: record_pb2.Record) -> Record:
    """Read a record."""
    return Record(
        uuid=message.uuid.value,
        claim=_claim(message.metadata),
        cell_id=message.cell_id,
        status=_status(message.status),
        lease_uuid=message.lease_uuid.value if message.HasField("lease_uuid") else None,
        created_at=time(message.created_at),
        updated_at=time(message.updated_at),
    )


def _status(number: int) -> str:
    named = record_pb2.Record.Status.DESCRIPTOR.values_by_number.get(number)
    return str(number) if named is None else str(named.name)


def cell(message: cell_info_pb2.CellInfo) -> Cell:
    """Read a cell."""
    has_range = message.HasField("sequence_range")
    return Cell(
        id=message.id,
        name=message.name,
        address=message.address,
        session_prefix=message.session_prefix,
        min_id=message.sequence_range.minval if has_range else None,
        max_id=message.sequence_range.maxval if has_range else None,
    )


def lease(message: record_pb2.LeaseRecord) -> OutstandingLease:
    """Read a listed lease."""
    return OutstandingLease(message.uuid.value, time(message.created_at), time(message.updated_at))


def cursor(message: any_pb2.Any) -> str:
    """Read a cursor as text, so that whoever pages can keep it anywhere."""
    return base64.b64encode(message.SerializeToString()).decode()


def read_cursor(text: str) -> any_pb2.Any:
    """Write a cursor.

    Raises
    ------
    InvalidError
        The text is none.
    """
    try:
        return any_pb2.Any.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise refusal(_INVALID, "the cursor is none: pass the `cursor` of the page before") from None


def time(message: timestamp_pb2.Timestamp) -> datetime:
    """Read a time, to the microsecond."""
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def time_of_micros(micros: int) -> datetime:
    """Read a time that came as microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def timestamp(at: datetime) -> timestamp_pb2.Timestamp:
    """Write a time.

    Raises
    ------
    InvalidError
        It has no time zone.
    TypeError
        It is no `datetime`.
    """
    if not isinstance(at, datetime):
        raise TypeError(f"`created_after` is a `{type(at).__name__}`: pass a `datetime` with a time zone")
    if at.tzinfo is None:
        raise refusal(_INVALID, f"the time `{at}` has no time zone: say which")
    micros = (at - _EPOCH) // timedelta(microseconds=1)
    return timestamp_pb2.Timestamp(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)


class ReceivedPage:
    """Some records of one table, in the order of their source ids. They become objects when somebody looks at them.

    Attributes
    ----------
    encoded
        The answer as it came off the wire, which verification reads.
    server_time
        The server's clock before the records were read.
    """

    def __init__(self, encoded: bytes, server_time: datetime) -> None:
        self.encoded = encoded
        self.server_time = server_time

    @cached_property
    def _response(self) -> service.ListRecordsResponse:
        return service.ListRecordsResponse.FromString(self.encoded)

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """The records."""
        return tuple(record(message) for message in self._response.records)

    @property
    def truncated(self) -> bool:
        """Whether more remain, beyond the last record's source id."""
        return self._response.truncated

    @property
    def last_source_id(self) -> bytes:
        """Where the next page begins; empty where there is no record."""
        records = self._response.records
        return records[-1].metadata.source.rails_primary_key_id if records else b""
