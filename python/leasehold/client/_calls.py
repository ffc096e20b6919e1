"""Each call of the contract: what is sent, and what is read out of the answer. Nothing is sent from here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from google.protobuf.message import Message

from leasehold._proto.gitlab.cells.topology_service import cell_info_pb2
from leasehold._proto.gitlab.cells.topology_service import classify_service_pb2 as classification
from leasehold._proto.gitlab.cells.topology_service.claims.v1 import claim_service_pb2 as service
from leasehold.cells import Cell, Classification, FoundRecord
from leasehold.claims import Bucket, Claim, Lease, LeasePage
from leasehold.client import _messages as messages
from leasehold.client._messages import ReceivedPage
from leasehold.errors import InternalError, LeaseholdError, MisconfiguredError

T = TypeVar("T")

CLAIMS = "gitlab.cells.topology_service.claims.v1.ClaimService"
CLASSIFY = "gitlab.cells.topology_service.ClassifyService"

# Request metadata by which the server knows a begin that it has seen.
IDEMPOTENCY_KEY = "leasehold-idempotency-key"
# Response metadata with a begun lease's number.
FENCE = "leasehold-fence"
# Response metadata with the server's clock.
SERVER_TIME = "leasehold-server-time-micros"

Headers = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call, which may be sent more than once."""

    path: str
    request: bytes
    read: Callable[[bytes, Headers], T]
    metadata: tuple[tuple[str, str], ...] = ()
    lease_uuid: str | None = None

    def explain(self, error: LeaseholdError) -> LeaseholdError:
        """Add what the caller needs to go on."""
        error.idempotency_key = dict(self.metadata).get(IDEMPOTENCY_KEY)
        error.lease_uuid = self.lease_uuid
        return error


def _call(rpc: str, request: Message, read: Callable[[bytes, Headers], T], *, of: str = CLAIMS) -> Call[T]:
    return Call(f"/{of}/{rpc}", request.SerializeToString(), read)


def begin(cell_id: int, creates: Sequence[Claim], destroys: Sequence[Claim], key: str) -> Call[Lease]:
    cell = service.BeginUpdateRequest(cell_id=cell_id).SerializeToString()
    # Messages that are written side by side are one.
    request = cell + messages.encoded("creates", creates) + messages.encoded("destroys", destroys)

    def read(answer: bytes, headers: Headers) -> Lease:
        response = service.BeginUpdateResponse.FromString(answer)
        return Lease(uuid=response.lease_uuid.value, fence=_header(headers, FENCE, "fences"))

    if not (key.isascii() and key.isprintable() and key):
        raise MisconfiguredError("the idempotency key is not printable ascii: use letters, digits and hyphens")
    return Call(f"/{CLAIMS}/BeginUpdate", request, read, ((IDEMPOTENCY_KEY, key),))


def commit(cell_id: int, uuid: str) -> Call[None]:
    request = service.CommitUpdateRequest(cell_id=cell_id, lease_uuid=messages.uuid(uuid))
    return Call(f"/{CLAIMS}/CommitUpdate", request.SerializeToString(), _nothing, lease_uuid=uuid)


def rollback(cell_id: int, uuid: str) -> Call[None]:
    request = service.RollbackUpdateRequest(cell_id=cell_id, lease_uuid=messages.uuid(uuid))
    return Call(f"/{CLAIMS}/RollbackUpdate", request.SerializeToString(), _nothing, lease_uuid=uuid)


def _nothing(_answer: bytes, _headers: Headers) -> None:
    return None


def list_leases(cell_id: int, created_after: datetime | None, cursor: str | None, limit: int | None) -> Call[LeasePage]:
    request = service.ListLeasesRequest(
        cell_id=cell_id,
        created_after=None if created_after is None else messages.timestamp(created_after),
        next=None if cursor is None else messages.read_cursor(cursor),
        limit=limit,
    )

    def read(answer: bytes, headers: Headers) -> LeasePage:
        response = service.ListLeasesResponse.FromString(answer)
        return LeasePage(
            leases=tuple(messages.lease(lease) for lease in response.leases),
            cursor=messages.cursor(response.next) if response.HasField("next") else None,
            server_time=_server_time(headers),
        )

    return _call("ListLeases", request, read)


def list_records(cell_id: int, source_type: int, bucket_types: Sequence[int], after: bytes, upto: bytes) -> Call[ReceivedPage]:
    request = service.ListRecordsRequest(
        cell_id=cell_id,
        source_type=messages.enum(source_type),
        bucket_types=[messages.enum(bucket_type) for bucket_type in bucket_types],
        source_id_gt=after,
        source_id_lte=upto,
    )
    return _call("ListRecords", request, lambda answer, headers: ReceivedPage(answer, _server_time(headers)))


def get(bucket: Bucket) -> Call[FoundRecord]:
    def read(answer: bytes, _headers: Headers) -> FoundRecord:
        response = service.GetRecordResponse.FromString(answer)
        cell = messages.cell(response.cell_info) if response.HasField("cell_info") else None
        return FoundRecord(messages.record(response.record), cell)

    return _call("GetRecord", service.GetRecordRequest(bucket=messages.bucket(bucket)), read)


def cells() -> Call[tuple[Cell, ...]]:
    def read(answer: bytes, _headers: Headers) -> tuple[Cell, ...]:
        response = cell_info_pb2.GetCellsResponse.FromString(answer)
        return tuple(messages.cell(cell) for cell in response.cells)

    return _call("GetCells", cell_info_pb2.GetCellsRequest(), read)


def classify(buckets: Sequence[Bucket]) -> Call[Classification]:
    return _classify(classification.ClassifyRequest(claims=[messages.wire_claim(bucket) for bucket in buckets]))


def classify_session(prefix: str) -> Call[Classification]:
    return _classify(classification.ClassifyRequest(type=classification.SESSION_PREFIX, value=prefix))


def classify_cell(cell_id: int) -> Call[Classification]:
    return _classify(classification.ClassifyRequest(type=classification.CELL_ID, value=str(cell_id)))


def classify_first_cell() -> Call[Classification]:
    return _classify(classification.ClassifyRequest(type=classification.FIRST_CELL))


def _classify(request: classification.ClassifyRequest) -> Call[Classification]:
    def read(answer: bytes, _headers: Headers) -> Classification:
        response = classification.ClassifyResponse.FromString(answer)
        if response.action != classification.PROXY:
            raise InternalError(
                f"the server says to do `{int(response.action)}`, which is unknown: use a newer client", code="INTERNAL"
            )
        return Classification(response.proxy.address, messages.matched(response.matched_claim))

    return _call("Classify", request, read, of=CLASSIFY)


def _server_time(headers: Headers) -> datetime:
    return messages.time_of_micros(_header(headers, SERVER_TIME, "its time"))


def _header(headers: Headers, name: str, what: str) -> int:
    try:
        return int(headers[name])
    except (KeyError, ValueError):
        message = f"the server does not tell {what} (`{name}`): use one that is as new as this package"
        raise MisconfiguredError(message) from None
