"""A checkpoint of a run, which goes on for the same cell, table and claims alone."""

from __future__ import annotations

import json
from typing import Any

from leasehold.client import Client
from leasehold.errors import LeaseholdError, refusal
from leasehold.tables._table import Table

_CODE = "INVALID_CHECKPOINT"


class Origin:
    """What a run is of, as its checkpoint says it.

    Whether it corrects belongs to it: a run that does would pass over what one that does not has only looked at.
    """

    def __init__(self, client: Client, table: Table, *, source_type: int, apply: bool) -> None:
        columns = table.columns
        claims = sorted([int(one.bucket_type), one.value, int(one.subject_type), one.subject] for one in columns.claims)
        self._says: dict[str, Any] = {
            "cell": client.cell_id,
            "source type": int(source_type),
            "key": columns.key,
            "claims": claims,
            "apply": apply,
            **table.origin(),
        }

    def pack(self, checkpoint: str | None) -> str | None:
        """Bind the engine's checkpoint to this run's table."""
        return None if checkpoint is None else json.dumps({"of": self._says, "at": checkpoint})

    def unpack(self, checkpoint: str | None) -> str | None:
        """Give the engine's checkpoint back.

        Raises
        ------
        InvalidError
            It is none, or that of another run.
        """
        if checkpoint is None:
            return None
        try:
            read = json.loads(checkpoint)
            of, at = dict(read["of"]), str(read["at"])
        except (ValueError, TypeError, KeyError):
            raise _none() from None
        others = [name for name in {**self._says, **of} if self._says.get(name) != of.get(name)]
        if others:
            raise refusal(
                _CODE, f"the checkpoint is of another run, by its {_and(others)}: drop it, or name the one of this run"
            )
        return at


def _none() -> LeaseholdError:
    return refusal(_CODE, "the checkpoint is none: drop it, and the run begins anew")


def _and(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
