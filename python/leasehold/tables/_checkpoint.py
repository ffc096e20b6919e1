"""Checkpoints of `verify_table`, bound to one cell, table and set of claims."""

from __future__ import annotations

import json
from typing import Any

from leasehold.client import Client
from leasehold.errors import LeaseholdError, error_for_code
from leasehold.tables._table import Table

_CODE = "INVALID_CHECKPOINT"


class RunIdentity:
    """The settings that two runs must share so that one can continue from the checkpoint of the other.

    `apply` is one of them: a correcting run that continued from the checkpoint of a dry run would skip rows that the dry
    run did not correct.
    """

    def __init__(self, client: Client, table: Table, *, source_type: int, apply: bool) -> None:
        columns = table.columns
        claims = sorted(
            [int(claim.bucket_type), claim.value, int(claim.subject_type), claim.subject] for claim in columns.claims
        )
        self._settings: dict[str, Any] = {
            "cell": client.cell_id,
            "source type": int(source_type),
            "key": columns.key,
            "claims": claims,
            "apply": apply,
            **table.identity(),
        }

    def pack(self, checkpoint: str | None) -> str | None:
        """Return the engine's checkpoint packed with the settings of this run; None if there is no checkpoint."""
        return None if checkpoint is None else json.dumps({"of": self._settings, "at": checkpoint})

    def unpack(self, checkpoint: str | None) -> str | None:
        """Return the engine's checkpoint that a packed one contains; None without a checkpoint.

        Raises
        ------
        InvalidError
            The text is not a checkpoint, or belongs to a run with other settings.
        """
        if checkpoint is None:
            return None
        try:
            packed = json.loads(checkpoint)
            settings, position = dict(packed["of"]), str(packed["at"])
        except (ValueError, TypeError, KeyError):
            raise _invalid_checkpoint() from None
        names = [name for name in {**self._settings, **settings} if self._settings.get(name) != settings.get(name)]
        if names:
            differences = ", ".join(f"`{name}`" for name in names)
            raise error_for_code(
                _CODE, f"the checkpoint belongs to a run with another {differences}: pass the checkpoint of this run, or none"
            )
        return position


def _invalid_checkpoint() -> LeaseholdError:
    return error_for_code(_CODE, "the checkpoint is invalid: omit it to start from the beginning")
