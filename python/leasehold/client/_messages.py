"""Conversions between the package's values and the Protobuf messages of the wire contract."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any, Literal, TypeVar

from google.protobuf import any_pb2, timestamp_pb2
from google.protobuf.message import DecodeError, Message

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
from leasehold.errors import NUMBERS, LeaseholdError, error_for_code

MessageT = TypeVar("MessageT", bound=Message)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_INVALID = "INVALID_UPDATE"

# In the message `types.v1.Claim`, a field's number equals the wire number of its bucket type (`claim.proto` in
# proto/proto/gitlab/cells/topology_service/types/v1).
_CLAIM_FIELDS = claim_pb2.Claim.DESCRIPTOR.fields_by_number


def enum(number: int) -> Any:  # noqa: ANN401 - each enum has a type of its own
    """Return an enum number, typed as any Protobuf enum. Proto3 enums are open: unknown numbers survive encoding."""
    return number


def named(enum_class: type[BucketType | SubjectType | SourceType], number: int) -> int:
    """Return the member of `enum_class` with this number, or the plain number if this version has no such member."""
    try:
        return enum_class(number)
    except ValueError:
        return number


def uuid(value: str) -> uuid_pb2.UUID:
    """Return the Protobuf message for the id of a lease.

    Raises
    ------
    TypeError
        The value is not a string.
    """
    if not isinstance(value, str):
        raise TypeError(f"`lease_uuid` is a `{type(value).__name__}`, not a string: pass the `uuid` of a lease")
    return uuid_pb2.UUID(value=value)


def bucket(value: Bucket) -> record_pb2.Bucket:
    """Return the Protobuf message for a bucket."""
    return record_pb2.Bucket(type=enum(value.bucket_type), value=value.value)


def encoded(name: Literal["creates", "destroys"], claims: Sequence[Claim]) -> bytes:
    """Return a serialized `BeginUpdateRequest` that contains only the list `name`.

    Raises
    ------
    InvalidError
        A field of a claim has the wrong type. The error names the position of the claim.
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
        except (TypeError, ValueError, AttributeError) as error:  # noqa: PERF203 - the error needs the position
            raise _field_error(name, position, claim, error) from None


def _field_error(name: Literal["creates", "destroys"], position: int, claim: object, error: Exception) -> LeaseholdError:
    # No error may contain a claimed value (V09). The text of Protobuf's TypeError quotes it, so only the class name is used.
    message = f"`{name}[{position}]` has a field of the wrong type ({type(error).__name__}): pass the types of `Claim`"
    bucket_type = getattr(claim, "bucket_type", 0)
    number = bucket_type if isinstance(bucket_type, int) else 0
    return error_for_code(_INVALID, message, [(name, position, number, _INVALID, NUMBERS[_INVALID], message)])


def _metadata(claim: Claim) -> record_pb2.Metadata:
    subject, source, data = claim.subject, claim.source, claim.user_data
    return record_pb2.Metadata(
        bucket=bucket(claim.bucket),
        subject=None if subject is None else record_pb2.Subject(type=enum(subject.subject_type), id=subject.id),
        source=None if source is None else record_pb2.Source(type=enum(source.source_type), rails_primary_key_id=source.id),
        user_data=None if data is None else any_pb2.Any(type_url=data.type_url, value=data.value),
    )


def claim(metadata: record_pb2.Metadata) -> Claim:
    """Return the claim that a Protobuf message contains."""
    subject, source, data = metadata.subject, metadata.source, metadata.user_data
    return Claim(
        bucket_type=named(BucketType, metadata.bucket.type),
        bucket_value=metadata.bucket.value,
        subject=Subject(named(SubjectType, subject.type), subject.id) if metadata.HasField("subject") else None,
        source=Source(named(SourceType, source.type), source.rails_primary_key_id) if metadata.HasField("source") else None,
        user_data=UserData(data.type_url, data.value) if metadata.HasField("user_data") else None,
    )


def wire_claim(value: Bucket) -> claim_pb2.Claim:
    """Return the Protobuf message that names a bucket in a classify request.

    Raises
    ------
    InvalidError
        The contract cannot classify by this bucket type, or an id is not an integer.
    """
    field = _CLAIM_FIELDS.get(value.bucket_type)
    if field is None:
        raise _unclassifiable(f"the bucket type {int(value.bucket_type)} cannot classify a request: use another type")
    is_integer = field.cpp_type == field.CPPTYPE_INT64
    claim = claim_pb2.Claim()
    try:
        setattr(claim, field.name, int(value.value, 10) if is_integer else value.value)
    except (TypeError, ValueError):
        raise _unclassifiable(
            f"the value of `{field.name}` is not {'an integer' if is_integer else 'a string'}: pass one"
        ) from None
    return claim


def _unclassifiable(message: str) -> LeaseholdError:
    return error_for_code(_INVALID, message)


def matched_bucket(claim: claim_pb2.Claim) -> Bucket | None:
    """Return the bucket by which the server classified a request; None if the request named no bucket."""
    name = claim.WhichOneof("claim")
    if name is None:
        return None
    number = claim_pb2.Claim.DESCRIPTOR.fields_by_name[name].number
    return Bucket(named(BucketType, number), str(getattr(claim, name)))


def record(message: record_pb2.Record) -> Record:
    """Return the record that a Protobuf message contains."""
    return Record(
        uuid=message.uuid.value,
        claim=claim(message.metadata),
        cell_id=message.cell_id,
        status=_status(message.status),
        lease_uuid=message.lease_uuid.value if message.HasField("lease_uuid") else None,
        created_at=time(message.created_at),
        updated_at=time(message.updated_at),
    )


def wire_record(value: Record) -> record_pb2.Record:
    """Return the Protobuf message for a record."""
    return record_pb2.Record(
        uuid=uuid(value.uuid),
        metadata=_metadata(value.claim),
        cell_id=value.cell_id,
        status=value.status,
        lease_uuid=None if value.lease_uuid is None else uuid(value.lease_uuid),
        created_at=timestamp(value.created_at),
        updated_at=timestamp(value.updated_at),
    )


def _status(number: int) -> str:
    value = record_pb2.Record.Status.DESCRIPTOR.values_by_number.get(number)
    return str(number) if value is None else str(value.name)


def cell(message: cell_info_pb2.CellInfo) -> Cell:
    """Return the cell that a Protobuf message contains."""
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
    """Return the outstanding lease that an entry of `ListLeasesResponse` contains."""
    return OutstandingLease(message.uuid.value, time(message.created_at), time(message.updated_at))


def encode_cursor(message: Message) -> str:
    """Return the cursor of a list as Base64 text, which a caller can store anywhere."""
    return base64.b64encode(message.SerializeToString()).decode()


def decode_cursor(text: str, kind: type[MessageT]) -> MessageT:
    """Return the Protobuf message for the text of a cursor.

    Raises
    ------
    InvalidError
        The text is not a cursor.
    """
    try:
        return kind.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise error_for_code(_INVALID, "the cursor is invalid: pass the `cursor` of the previous page") from None


def time(message: timestamp_pb2.Timestamp) -> datetime:
    """Return the time that a Protobuf message contains, cut to microseconds: `datetime` has no nanoseconds."""
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def time_from_micros(micros: int) -> datetime:
    """Return the UTC time that is `micros` microseconds after 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def timestamp(at: datetime) -> timestamp_pb2.Timestamp:
    """Return the Protobuf message for a time.

    Raises
    ------
    InvalidError
        The time has no time zone.
    TypeError
        The value is not a `datetime`.
    """
    if not isinstance(at, datetime):
        raise TypeError(f"`created_after` is a `{type(at).__name__}`: pass a `datetime` with a time zone")
    if at.tzinfo is None:
        raise error_for_code(_INVALID, f"the time `{at}` has no time zone: pass an aware `datetime`")
    micros = (at - _EPOCH) // timedelta(microseconds=1)
    return timestamp_pb2.Timestamp(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)


class ReceivedPage:
    """A page of a cell's records of one table, in the order of their source ids.

    The first access to `records` decodes the bytes. Verification reads `encoded`, and decodes nothing in Python.

    Attributes
    ----------
    encoded
        The serialized `ListRecordsResponse`.
    server_time
        The server's clock before it read the records.
    """

    def __init__(self, encoded: bytes, server_time: datetime) -> None:
        self.encoded = encoded
        self.server_time = server_time

    @cached_property
    def _response(self) -> service.ListRecordsResponse:
        return service.ListRecordsResponse.FromString(self.encoded)

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """The records of this page, decoded from the server's response."""
        return tuple(record(message) for message in self._response.records)

    @property
    def truncated(self) -> bool:
        """True if the table has more records after `last_source_id`."""
        return self._response.truncated

    @property
    def last_source_id(self) -> bytes:
        """The source id of the page's last record, after which the next page begins; empty if the page has no records."""
        records = self._response.records
        return records[-1].metadata.source.rails_primary_key_id if records else b""
