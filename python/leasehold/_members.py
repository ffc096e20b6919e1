"""Types of the tuples in which the extension returns claims and records."""

from __future__ import annotations

from typing import TypeAlias

ClaimMembers: TypeAlias = tuple[int, str, tuple[int, int] | None, tuple[int, bytes] | None]
"""A claim as the extension returns it: its bucket type, value, subject and source."""

RecordMembers: TypeAlias = tuple[str, tuple[int, str, tuple[int, int], tuple[int, bytes]], int, str, str | None, int, int]
"""A record as the extension returns it: uuid, claim, cell, status, lease, and the microseconds of creation and last change."""
