"""The creates or destroys of an update that the engine requests, converted to Python objects on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, overload

from leasehold import _native
from leasehold.claims import Claim, Source, Subject


class EngineClaims(Sequence[Claim]):
    """An immutable sequence of claims that stays in the extension until a caller reads its items.

    The gRPC client sends the `encoded` bytes, so a backfill creates no Python object per claim. The sequence builds its
    `Claim` objects once, on the first access.
    """

    def __init__(self, claims: _native.Claims) -> None:
        self._native = claims

    def encoded(self, name: Literal["creates", "destroys"]) -> bytes:
        """Return the claims as the field `name` of a serialized `BeginUpdateRequest`.

        Concatenated encodings of one Protobuf message type merge: repeated fields append
        (protobuf.dev, "Encoding", section "Last One Wins"). The caller can therefore join both lists and the cell.
        """
        return self._native.encoded(name)

    @cached_property
    def _claims(self) -> tuple[Claim, ...]:
        return tuple(
            Claim(bucket_type, value, subject and Subject(*subject), source and Source(*source))
            for bucket_type, value, subject, source in self._native.members()
        )

    def __len__(self) -> int:
        return len(self._native)

    @overload
    def __getitem__(self, index: int) -> Claim: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Claim]: ...
    def __getitem__(self, index: int | slice) -> Claim | Sequence[Claim]:
        return self._claims[index]

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (tuple, EngineClaims)) and self._claims == tuple(other)

    def __hash__(self) -> int:
        return hash(self._claims)

    def __repr__(self) -> str:
        return repr(self._claims)
