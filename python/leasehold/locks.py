"""Locks as the server stores them, and the standing of the session under which a process holds locks."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

__all__ = ["EndedGrant", "GrantEnd", "Lock", "LockPage", "LockState", "Obituary", "Standing"]


class Standing(enum.Enum):
    """The state of a session as its process knows it, without the server."""

    SAFE = "safe"
    """The last renewal is younger than the duration: the process may work."""
    JEOPARDY = "jeopardy"
    """The duration has passed without an answer: the process must pause. An answer makes the session safe again."""
    LOST = "lost"
    """The session has ended, or its grace has nearly passed: the process must stop. The session never comes back."""


class LockState(enum.Enum):
    """The state of a lock."""

    FREE = 1
    """No session holds the lock."""
    HELD = 2
    """One session holds the lock."""
    WITHHELD = 3
    """The lock was taken from its holder. It is granted again when the time of that holder is over."""
    ORPHANED = 4
    """The holder has died in a namespace that is reaped. The lock waits for a cleanup."""
    SET_ASIDE = 5
    """The cleanup has failed too often. The lock waits for an operator, who calls `resolve_orphan`."""
    SHARED = 6
    """Several asks share the lock. Each holds a slot, which is a `Lock` of its own."""


class GrantEnd(enum.Enum):
    """The way in which a grant of a lock ended."""

    SUCCEEDED = 1
    """The holder released the lock: the work succeeded."""
    FAILED = 2
    """The holder released the lock: the work failed."""
    LEFT = 3
    """The ask left before its caller learnt of the grant."""
    CLOSED = 4
    """The holder's session was closed."""
    EXPIRED = 5
    """The holder's session expired."""
    EVICTED = 6
    """An operator evicted the holder's session."""
    FORCED = 7
    """An operator took the lock."""


@dataclass(frozen=True)
class EndedGrant:
    """A grant that has ended.

    Attributes
    ----------
    fence : int
        The fence of the grant.
    end : GrantEnd
        The way in which the grant ended.
    value : bytes
        The value that the holder gave with the release.
    ended_at : datetime
        The server's time of the end.
    """

    fence: int
    end: GrantEnd
    value: bytes
    ended_at: datetime


@dataclass(frozen=True)
class Obituary:
    """A grant whose holder has died, and whose cleanup has not succeeded yet.

    Attributes
    ----------
    fence : int
        The fence of the grant.
    end : GrantEnd
        The way in which the grant ended.
    ended_at : datetime
        The server's time of the end.
    attempts : int
        The number of cleanups that were begun.
    most_attempts : int
        The most cleanups that are begun before the lock is set aside.
    """

    fence: int
    end: GrantEnd
    ended_at: datetime
    attempts: int
    most_attempts: int


@dataclass(frozen=True)
class Lock:
    """A lock as the server stores it.

    Attributes
    ----------
    namespace, key : str
        The name of the lock.
    state : LockState
        The state of the lock.
    fence : int or None
        The fence of the grant, or of the grant that was taken away; None if the lock is free or waits for a cleanup.
    session_id : str or None
        The session that holds the lock; None if none does.
    updated_at : datetime
        The server's time of the last change.
    waiting : int
        The number of asks that wait for the lock.
    last : EndedGrant or None
        The grant that ended last; None before the first end.
    obituary : Obituary or None
        The grant whose cleanup is due; None if none is.
    slot : int
        The number of the slot, from 1, if this is one of a lock that asks share; 0 if this is the lock itself.
    taken_slots : int
        The number of slots that are taken: held, withheld or waiting for a cleanup. 0 if the state is not `SHARED`.
    permits : int
        The number of permits while slots are taken; 0 if asks share the lock as readers do.
    """

    namespace: str
    key: str
    state: LockState
    fence: int | None
    session_id: str | None
    updated_at: datetime
    waiting: int
    last: EndedGrant | None
    obituary: Obituary | None
    slot: int = 0
    taken_slots: int = 0
    permits: int = 0


@dataclass(frozen=True)
class LockPage:
    """A page of the locks that are not free, in the order of namespace and key. Slots follow their lock.

    Attributes
    ----------
    locks : tuple of Lock
        The locks of the page.
    truncated : bool
        True if more locks follow the last one of the page.
    """

    locks: tuple[Lock, ...]
    truncated: bool
