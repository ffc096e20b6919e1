"""Members of claims and records, as they cross to and from the extension."""

from __future__ import annotations

from typing import TypeAlias

ClaimMembers: TypeAlias = tuple[int, str, tuple[int, int] | None, tuple[int, bytes] | None]
"""Bucket type, value, subject and source."""

RecordMembers: TypeAlias = tuple[str, tuple[int, str, tuple[int, int], tuple[int, bytes]], int, str, str | None, int, int]
"""Uuid, claim, cell, status, lease, and times of birth and of the last change in microseconds since 1970."""
