"""Samples of a verification run: what was found for which row, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pyarrow as pa

from leasehold.calls import check_batch, encode_source_id
from leasehold.claims import BucketType, Claim, Source, Subject
from leasehold.client import Client
from leasehold.errors import InvalidError
from leasehold.tables._keys import Key, decode_key
from leasehold.tables._table import RowReader
from leasehold.verification import Finding, Outcome, TableColumns

_REASONS: dict[Outcome, str] = {
    "created": "the service has no claim for this value",
    "replaced": "the claim has another spelling, subject or row",
    "destroyed": "no row makes this claim",
    "gone": "the claim was given up before the run could do so",
    "invalid": "the value or the subject is not allowed",
    "other_cell": "another cell owns the name",
    "other_row": "another row of this cell has claimed the name",
    "busy": "another lease holds the name: run again later",
    "changed": "the row or the claim changed during the run: run again",
    "recent": "the row changed a short time ago: run again later",
    "failed": "the update failed: run again",
}
_INVALID_RECORD = "the service has a claim whose value is not allowed"


@dataclass(frozen=True)
class Sample:
    """One finding of a run; on request, with the current values in its row and in the service.

    Two runs that find the same have equal samples, apart from the hashes in `finding`.

    Attributes
    ----------
    outcome : str
        The result for the claim.
    bucket_type : int
        The type of the claim: a `BucketType`, or the number of a type that only the service's configuration names.
    key : int, str, UUID or bytes
        The primary key of the claim's row.
    reason : str
        The reason, for people. It never contains the value.
    in_table, in_service : tuple of str
        The values of that bucket type in the row and in the service after the run. Empty unless `show_values` is set.
    finding : Finding
        The engine's form of the result, with the encoded key and a hash of the value under the seed of the run.
    """

    outcome: Outcome
    bucket_type: int
    key: Key
    reason: str
    in_table: tuple[str, ...] = ()
    in_service: tuple[str, ...] = ()
    finding: Finding = field(kw_only=True, compare=False, repr=False)

    @property
    def type_name(self) -> str:
        """The name of the bucket type, or its number if this version has no name for it."""
        return self.bucket_type.name if isinstance(self.bucket_type, BucketType) else str(self.bucket_type)


class Sampler:
    """Makes samples of findings. It reads the rows of invalid claims again to find the reason."""

    def __init__(self, columns: TableColumns, key_kind: str, source_type: int) -> None:
        self._columns = columns
        self._key_kind = key_kind
        self._source_type = source_type

    def plain(self, findings: Iterable[Finding]) -> tuple[Sample, ...]:
        """Return samples without I/O, with the general reason of each outcome."""
        return tuple(self._sample(finding, _REASONS[finding.outcome]) for finding in findings)

    def explained(self, findings: Sequence[Finding], rows: RowReader, shown_by: Client | None) -> tuple[Sample, ...]:
        """Return samples with exact reasons, and with values if the client `shown_by` is given."""
        needed = findings if shown_by else [finding for finding in findings if finding.outcome == "invalid"]
        ids = sorted({bytes.fromhex(finding.source_id) for finding in needed})
        claims = self._claims_by_row(rows.read_again(ids)) if ids else {}
        return tuple(self._explained(finding, claims, shown_by) for finding in findings)

    def _explained(self, finding: Finding, claims: dict[tuple[bytes, int], list[Claim]], shown_by: Client | None) -> Sample:
        place = (bytes.fromhex(finding.source_id), finding.bucket_type)
        of_row = claims.get(place, [])
        reason = _problem(of_row) if finding.outcome == "invalid" else _REASONS[finding.outcome]
        if shown_by is None:
            return self._sample(finding, reason)
        in_table = tuple(claim.bucket_value for claim in of_row)
        return self._sample(finding, reason, in_table, self._values_in_service(shown_by, *place))

    def _sample(
        self, finding: Finding, reason: str, in_table: tuple[str, ...] = (), in_service: tuple[str, ...] = ()
    ) -> Sample:
        key = decode_key(bytes.fromhex(finding.source_id), self._key_kind)
        return Sample(finding.outcome, _named(finding.bucket_type), key, reason, in_table, in_service, finding=finding)

    def _claims_by_row(self, rows: pa.Table) -> dict[tuple[bytes, int], list[Claim]]:
        """Return the claims that rows make, by encoded key and bucket type."""
        claims: dict[tuple[bytes, int], list[Claim]] = {}
        for row in rows.to_pylist():
            source = Source(self._source_type, _encoded(row[self._columns.key]))
            for columns in self._columns.claims:
                if row[columns.value] is not None:
                    subject = Subject(columns.subject_type, row[columns.subject])
                    claim = Claim(columns.bucket_type, str(row[columns.value]), subject, source)
                    claims.setdefault((source.id, columns.bucket_type), []).append(claim)
        return claims

    def _values_in_service(self, client: Client, source_id: bytes, bucket_type: int) -> tuple[str, ...]:
        pages = client.records(self._source_type, [bucket_type], after=_lower_bound(source_id), upto=source_id)
        of_row = (record for record in pages if record.claim.source is not None and record.claim.source.id == source_id)
        return tuple(record.claim.bucket_value for record in of_row)


def _problem(claims: Iterable[Claim]) -> str:
    """Return the reasons why the engine refuses claims of a row. If it refuses none, it refuses a claim of the service."""
    return "; ".join(dict.fromkeys(_refusals(claims))) or _INVALID_RECORD


def _refusals(claims: Iterable[Claim]) -> Iterator[str]:
    for claim in claims:
        try:
            check_batch([claim])
        except InvalidError as error:  # noqa: PERF203 - each claim has an error of its own
            # The message begins with the claim's place in the update.
            yield error.message.split(": ", 1)[-1]


def _encoded(key: int | str | bytes | UUID) -> bytes:
    if isinstance(key, bytes):
        return key
    return encode_source_id(str(key) if isinstance(key, UUID) else key)


def _named(bucket_type: int) -> int:
    return BucketType(bucket_type) if bucket_type in BucketType.__members__.values() else bucket_type


def _lower_bound(source_id: bytes) -> bytes:
    """Return a source id just below `source_id`, because the lower bound of a page is exclusive. Few ids lie in between."""
    if source_id[-1] == 0:
        return source_id[:-1]
    return source_id[:-1] + bytes([source_id[-1] - 1])
