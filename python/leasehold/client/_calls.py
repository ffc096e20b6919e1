"""One function per rpc of the server: it encodes the request and decodes the response. The two clients do the I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from google.protobuf import any_pb2
from google.protobuf.message import Message

from leasehold._arguments import check_number
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

# Request metadata key of an idempotency key. A repeated begin with the same key returns the lease of the first begin.
IDEMPOTENCY_KEY = "leasehold-idempotency-key"
# Response metadata key with the fence of a new lease.
FENCE = "leasehold-fence"
# Response metadata key with the server's clock, in microseconds since 1970.
SERVER_TIME = "leasehold-server-time-micros"

Headers = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Call(Generic[T]):
    """An encoded call of one rpc, with the function that decodes its response. A client may send it more than once."""

    path: str
    request: bytes
    decode: Callable[[bytes, Headers], T]
    metadata: tuple[tuple[str, str], ...] = ()
    lease_uuid: str | None = None

    def annotate(self, error: LeaseholdError) -> LeaseholdError:
        """Add this call's idempotency key and lease to an exception, so that the caller can repeat the call."""
        error.idempotency_key = dict(self.metadata).get(IDEMPOTENCY_KEY)
        error.lease_uuid = self.lease_uuid
        return error


def call(service_name: str, rpc: str, request: Message, decode: Callable[[bytes, Headers], T]) -> Call[T]:
    """Return the call of an rpc without metadata of its own."""
    return Call(f"/{service_name}/{rpc}", request.SerializeToString(), decode)


def no_answer(_response: bytes, _headers: Headers) -> None:
    """Decode the response of an rpc that answers nothing."""


def begin(
    cell_id: int, creates: Sequence[Claim], destroys: Sequence[Claim], organization_id: int | None, key: str
) -> Call[Lease]:
    cell = service.BeginUpdateRequest(cell_id=cell_id, organization_id=organization_id or 0).SerializeToString()
    # Concatenated encodings of one Protobuf message type merge (protobuf.dev, "Encoding", "Last One Wins"). Claims that the
    # engine has encoded therefore need no Python objects.
    request = cell + messages.encoded("creates", creates) + messages.encoded("destroys", destroys)

    def decode(response: bytes, headers: Headers) -> Lease:
        message = service.BeginUpdateResponse.FromString(response)
        return Lease(uuid=message.lease_uuid.value, fence=_header(headers, FENCE))

    if not (key.isascii() and key.isprintable() and key):
        raise MisconfiguredError("the idempotency key is empty or not printable ASCII: use letters, digits and hyphens")
    return Call(f"/{CLAIMS}/BeginUpdate", request, decode, ((IDEMPOTENCY_KEY, key),))


def commit(cell_id: int, uuid: str) -> Call[None]:
    request = service.CommitUpdateRequest(cell_id=cell_id, lease_uuid=messages.uuid(uuid))
    return Call(f"/{CLAIMS}/CommitUpdate", request.SerializeToString(), no_answer, lease_uuid=uuid)


def rollback(cell_id: int, uuid: str) -> Call[None]:
    request = service.RollbackUpdateRequest(cell_id=cell_id, lease_uuid=messages.uuid(uuid))
    return Call(f"/{CLAIMS}/RollbackUpdate", request.SerializeToString(), no_answer, lease_uuid=uuid)


def list_leases(cell_id: int, created_after: datetime | None, cursor: str | None, limit: int | None) -> Call[LeasePage]:
    if limit is not None:
        check_number("limit", limit, 31)
    request = service.ListLeasesRequest(
        cell_id=cell_id,
        created_after=None if created_after is None else messages.timestamp(created_after),
        next=None if cursor is None else messages.decode_cursor(cursor, any_pb2.Any),
        limit=limit,
    )

    def decode(response: bytes, headers: Headers) -> LeasePage:
        message = service.ListLeasesResponse.FromString(response)
        return LeasePage(
            leases=tuple(messages.lease(lease) for lease in message.leases),
            cursor=messages.encode_cursor(message.next) if message.HasField("next") else None,
            server_time=_server_time(headers),
        )

    return call(CLAIMS, "ListLeases", request, decode)


def list_records(cell_id: int, source_type: int, bucket_types: Sequence[int], after: bytes, upto: bytes) -> Call[ReceivedPage]:
    if not bucket_types:
        # An empty list of types in a request means all types on the wire. A run without types must do nothing instead (V11).
        raise MisconfiguredError("`bucket_types` is empty, which the server takes for all types: name each")
    request = service.ListRecordsRequest(
        cell_id=cell_id,
        source_type=messages.enum(source_type),
        bucket_types=[messages.enum(bucket_type) for bucket_type in bucket_types],
        source_id_gt=after,
        source_id_lte=upto,
    )
    return call(CLAIMS, "ListRecords", request, lambda response, headers: ReceivedPage(response, _server_time(headers)))


def get(bucket: Bucket) -> Call[FoundRecord]:
    def decode(response: bytes, _headers: Headers) -> FoundRecord:
        message = service.GetRecordResponse.FromString(response)
        cell = messages.cell(message.cell_info) if message.HasField("cell_info") else None
        return FoundRecord(messages.record(message.record), cell)

    return call(CLAIMS, "GetRecord", service.GetRecordRequest(bucket=messages.bucket(bucket)), decode)


def cells() -> Call[tuple[Cell, ...]]:
    def decode(response: bytes, _headers: Headers) -> tuple[Cell, ...]:
        message = cell_info_pb2.GetCellsResponse.FromString(response)
        return tuple(messages.cell(cell) for cell in message.cells)

    return call(CLAIMS, "GetCells", cell_info_pb2.GetCellsRequest(), decode)


def classify(buckets: Sequence[Bucket]) -> Call[Classification]:
    return _classify(classification.ClassifyRequest(claims=[messages.wire_claim(bucket) for bucket in buckets]))


def classify_session(prefix: str) -> Call[Classification]:
    return _classify(classification.ClassifyRequest(type=classification.SESSION_PREFIX, value=prefix))


def classify_cell(cell_id: int) -> Call[Classification]:
    return _classify(classification.ClassifyRequest(type=classification.CELL_ID, value=str(cell_id)))


def classify_first_cell() -> Call[Classification]:
    return _classify(classification.ClassifyRequest(type=classification.FIRST_CELL))


def _classify(request: classification.ClassifyRequest) -> Call[Classification]:
    def decode(response: bytes, _headers: Headers) -> Classification:
        message = classification.ClassifyResponse.FromString(response)
        if message.action != classification.PROXY:
            raise InternalError(
                f"the server returned the unknown action `{int(message.action)}`: install a newer client", code="INTERNAL"
            )
        return Classification(message.proxy.address, messages.matched_bucket(message.matched_claim))

    return call(CLASSIFY, "Classify", request, decode)


def _server_time(headers: Headers) -> datetime:
    return messages.time_from_micros(_header(headers, SERVER_TIME))


def _header(headers: Headers, name: str) -> int:
    try:
        return int(headers[name])
    except (KeyError, ValueError):
        message = f"the response lacks the metadata `{name}`: use a server of this package's version or newer"
        raise MisconfiguredError(message) from None
