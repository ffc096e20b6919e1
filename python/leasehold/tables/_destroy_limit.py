"""The limit on the share of a table's claims that one verification run may destroy (V11)."""

from __future__ import annotations

import math
from collections.abc import Callable

from leasehold.errors import MisconfiguredError
from leasehold.verification import Report


class DestroyLimit:
    """Stops a verification run before it destroys too large a share of a table's claims, whatever the cause.

    Parameters
    ----------
    share : float
        The largest share, from 0 to 1.
    survey : callable
        A function that returns the report of a dry run over the whole table.

    Raises
    ------
    MisconfiguredError
        The share is not between 0 and 1.
    """

    def __init__(self, share: float, survey: Callable[[], Report]) -> None:
        if not 0 <= share <= 1:
            raise MisconfiguredError(f"`max_destroy_share` is {share}: set it to a share from 0 to 1")
        self._share = share
        self._survey = survey
        self._is_surveyed = False

    def is_exceeded(self, planned: Report) -> bool:
        """Return True if a correcting run would stop at the limit. `planned` is the report of a dry run."""
        return planned.destroyed > self._share * planned.records

    def check(self, report: Report, destroys: int) -> None:
        """Raise an error if an update with this number of destroys would exceed the share.

        The claims listed so far are at most those of the whole table. So the share of the table is exceeded only if the
        share of the listed claims is. In that case a dry run counts the whole table, once per run: destroyed claims may lie
        close together, and replaced claims count as destroys here.

        Raises
        ------
        MisconfiguredError
            The run would destroy more than the share.
        """
        if self._is_surveyed or destroys == 0 or report.destroyed + destroys <= self._share * report.records:
            return
        planned = self._survey()
        self._is_surveyed = True
        if not self.is_exceeded(planned):
            return
        share = math.ceil(planned.destroyed / planned.records * 100) / 100
        raise MisconfiguredError(
            f"the run would destroy {planned.destroyed} of the table's {planned.records} claims, more than the share of "
            f"{self._share}: check the table with a dry run, and set `max_destroy_share` to {share} to proceed",
            code="TOO_MANY_DESTROYS",
        )
