"""Types of the tuples by which claims and records leave the extension."""

from __future__ import annotations

from typing import TypeAlias

ClaimMembers: TypeAlias = tuple[int, str, tuple[int, int] | None, tuple[int, bytes] | None]
"""The bucket type, value, subject and source of a claim."""

RecordMembers: TypeAlias = tuple[str, tuple[int, str, tuple[int, int], tuple[int, bytes]], int, str, str | None, int, int]
"""The uuid, claim, cell, status, lease, creation time and last update of a record; times are microseconds since 1970."""
