"""Claims of an update that the engine asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, overload

from leasehold import _native
from leasehold.claims import Claim, Source, Subject


class EngineClaims(Sequence[Claim]):
    """A list of claims as the engine has it. They become objects when somebody looks at them, and clients need none."""

    def __init__(self, claims: _native.Claims) -> None:
        self._native = claims

    def encoded(self, name: Literal["creates", "destroys"]) -> bytes:
        """Write them as that list of a `BeginUpdateRequest`: messages that are written side by side are one."""
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
    def __getitem__(self, place: int) -> Claim: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Claim]: ...
    def __getitem__(self, place: int | slice) -> Claim | Sequence[Claim]:
        return self._claims[place]

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (tuple, EngineClaims)) and self._claims == tuple(other)

    def __hash__(self) -> int:
        return hash(self._claims)

    def __repr__(self) -> str:
        return repr(self._claims)
