"""A client of a claims service in memory: the calls of `Client`, answered without a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from google.protobuf import any_pb2
from google.protobuf.message import Message

from leasehold import times
from leasehold._proto.gitlab.cells.topology_service import cell_info_pb2
from leasehold._proto.gitlab.cells.topology_service.claims.v1 import claim_service_pb2 as wire
from leasehold._proto.gitlab.cells.topology_service.claims.v1 import record_pb2
from leasehold.claims import OutstandingLease
from leasehold.client import _messages as messages
from leasehold.client._calls import CLAIMS, FENCE, IDEMPOTENCY_KEY, SERVER_TIME, Call, T
from leasehold.client._retry import Retry
from leasehold.client._synchronous import Client
from leasehold.errors import LeaseholdError, MisconfiguredError
from leasehold.service import ClaimsService

# A response, and the metadata that a server would send with it.
Answer = tuple[Message, Mapping[str, str]]


class MemoryClient(Client):
    """A `Client` of a `ClaimsService` in memory, for tests of code that takes a `Client`. `ClaimsService.client` returns it.

    It has the calls for claims. Those for locks, queues and routing need a server, and raise `MisconfiguredError`.

    Examples
    --------
    >>> service = ClaimsService(cells=[1, 2])
    >>> alice = Claim(BucketType.USERNAMES, "alice", Subject(SubjectType.USER, 7), Source.of(SourceType.USERS, 7))
    >>> with service.client(cell_id=1) as client:
    ...     with client.update(creates=[alice]):
    ...         pass  # the code that is tested saves the user here
    ...     client.get(alice.bucket).record.cell_id
    1
    """

    def __init__(self, service: ClaimsService, cell_id: int | None) -> None:
        self._service = service
        super().__init__(cell_id=cell_id)

    def _open(self) -> None:
        """Connect to nothing."""

    def close(self) -> None:
        """Close the client. The service and its claims stay."""
        self._is_closed = True

    def _run(self, call: Call[T], timeout_seconds: float | None, retry: Retry | None = None) -> T:  # noqa: ARG002 - as for a server
        self._check_open()
        answer = _ANSWERS.get(call.path) or _refuse(call)
        try:
            response, headers = answer(self._service, call.request, dict(call.metadata))
        except LeaseholdError as error:
            raise call.annotate(error) from None
        return call.decode(response.SerializeToString(), {SERVER_TIME: str(times.micros(self._service.now())), **headers})

    def _stream(self, call: Call[T], timeout_seconds: float | None) -> NoReturn:  # noqa: ARG002 - see above
        _refuse(call)


def _refuse(call: Call[T]) -> NoReturn:
    rpc = call.path.rpartition("/")[2]
    raise MisconfiguredError(f"the service in memory has no `{rpc}`: use a `Client` of a server for locks, queues and routing")


def _begin(service: ClaimsService, request: bytes, metadata: Mapping[str, str]) -> Answer:
    message = wire.BeginUpdateRequest.FromString(request)
    lease = service.begin(
        message.cell_id,
        map(messages.claim, message.create_records),
        map(messages.claim, message.destroy_records),
        organization_id=message.organization_id,
        idempotency_key=metadata[IDEMPOTENCY_KEY],
    )
    return wire.BeginUpdateResponse(lease_uuid=messages.uuid(lease.uuid)), {FENCE: str(lease.fence)}


def _commit(service: ClaimsService, request: bytes, _: Mapping[str, str]) -> Answer:
    message = wire.CommitUpdateRequest.FromString(request)
    service.commit(message.cell_id, message.lease_uuid.value)
    return wire.CommitUpdateResponse(), {}


def _roll_back(service: ClaimsService, request: bytes, _: Mapping[str, str]) -> Answer:
    message = wire.RollbackUpdateRequest.FromString(request)
    service.rollback(message.cell_id, message.lease_uuid.value)
    return wire.RollbackUpdateResponse(), {}


def _list_leases(service: ClaimsService, request: bytes, _: Mapping[str, str]) -> Answer:
    message = wire.ListLeasesRequest.FromString(request)
    page = service.list_leases(
        message.cell_id,
        limit=message.limit if message.HasField("limit") else None,
        created_after=messages.time(message.created_after) if message.HasField("created_after") else None,
        cursor=message.next.value.decode() if message.HasField("next") else None,
    )
    following = None if page.cursor is None else any_pb2.Any(value=page.cursor.encode())
    return wire.ListLeasesResponse(leases=map(_lease, page.leases), next=following), {}


def _lease(lease: OutstandingLease) -> record_pb2.LeaseRecord:
    created, updated = messages.timestamp(lease.created_at), messages.timestamp(lease.updated_at)
    return record_pb2.LeaseRecord(uuid=messages.uuid(lease.uuid), created_at=created, updated_at=updated)


def _list_records(service: ClaimsService, request: bytes, _: Mapping[str, str]) -> Answer:
    message = wire.ListRecordsRequest.FromString(request)
    page = service.list_records(
        message.cell_id,
        message.source_type,
        bucket_types=message.bucket_types,
        after=message.source_id_gt,
        upto=message.source_id_lte,
    )
    records = map(messages.wire_record, page.records)
    return wire.ListRecordsResponse(records=records, truncated=page.truncated), {}


def _get(service: ClaimsService, request: bytes, _: Mapping[str, str]) -> Answer:
    bucket = wire.GetRecordRequest.FromString(request).bucket
    record = service.get(bucket.type, bucket.value)
    return wire.GetRecordResponse(record=messages.wire_record(record), cell_info=_cell(record.cell_id)), {}


def _cells(service: ClaimsService, _request: bytes, _: Mapping[str, str]) -> Answer:
    return cell_info_pb2.GetCellsResponse(cells=map(_cell, service.cells)), {}


def _cell(cell_id: int) -> cell_info_pb2.CellInfo:
    return cell_info_pb2.CellInfo(id=cell_id, name=f"cell-{cell_id}")


_ANSWERS: Mapping[str, Callable[[ClaimsService, bytes, Mapping[str, str]], Answer]] = {
    f"/{CLAIMS}/{rpc}": answer
    for rpc, answer in {
        "BeginUpdate": _begin,
        "CommitUpdate": _commit,
        "RollbackUpdate": _roll_back,
        "ListLeases": _list_leases,
        "ListRecords": _list_records,
        "GetRecord": _get,
        "GetCells": _cells,
    }.items()
}
