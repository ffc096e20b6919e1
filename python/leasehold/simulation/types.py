"""Shapes of what a simulation takes and gives, member by member. Names are those of traces.

A variant with members is a dict with its name as the only key: `{"save": {"cell": 1, "worker": 0, "change": {"create": 0}}}`;
one without is its name: `"stop_service"`. Cells are numbered from 1, what they have from 0.
"""

from __future__ import annotations

import sys
from typing import Any, Literal, TypedDict

if sys.version_info >= (3, 11):
    from typing import NotRequired, TypeAlias
else:
    from typing import TypeAlias

    from typing_extensions import NotRequired


Process: TypeAlias = str | dict[str, Any]
"""A process of a cell: workers save for users, reconcilers settle leases that were left, the verifier compares tables."""

Change: TypeAlias = str | dict[str, Any]
"""What a user wants to be saved. Rows and names go by number."""

Drift: TypeAlias = dict[str, Any]
"""A change past the claims, as plain SQL makes it."""

MessageId: TypeAlias = int
"""A message's name."""

Event: TypeAlias = str | dict[str, Any]
"""One thing that happens to a world. Cells are numbered from 1, what they have from 0."""

Rule: TypeAlias = Literal[
    "lease_exclusivity",
    "ownership",
    "settled_lease_memory",
    "replay_keys",
    "local_fence",
    "skip_recent_rows",
    "skip_recent_claims",
]
"""A rule of the protocol that can be switched off."""

Mode: TypeAlias = Literal["before_commit", "lease_first"]
"""When a cell begins the lease of a save: right before its local COMMIT, or before its local BEGIN."""


class Thresholds(TypedDict):
    """The spans of time that the protocol goes by."""

    stale_after_seconds: int
    commit_within_seconds: int
    transaction_within_seconds: int
    recent_within_seconds: int
    remember_within_seconds: int
    replica_lag_seconds: int


class Clock(TypedDict):
    """How the clock of a cell's database differs from the service's."""

    ahead_seconds: int
    fast_ppm: int


class Rates(TypedDict):
    """How often chance draws what, as weights; 0 is never."""

    save: int
    step: int
    deliver: int
    drop: int
    duplicate: int
    time_out: int
    crash: int
    disconnect: int
    partition: int
    restart: int
    wait: int
    drift: int


class Settings(TypedDict):
    """What a world is made of. Lists begin again where they end before the cells do."""

    seed: int
    cells: int
    workers: int
    reconcilers: int
    names: int
    modes: list[Mode]
    clocks: list[Clock]
    rules_off: list[Rule]
    thresholds: Thresholds
    step_micros: int
    rates: Rates


class SomeSettings(TypedDict, total=False):
    """What a world is made of, as far as it is not the usual. Lists begin again where they end before the cells do."""

    seed: int
    cells: int
    workers: int
    reconcilers: int
    names: int
    modes: list[Mode]
    clocks: list[Clock]
    rules_off: list[Rule]
    thresholds: Thresholds
    step_micros: int
    rates: Rates


class Trace(TypedDict):
    """A run: the settings of a world, and what befell it."""

    version: int
    settings: Settings
    events: list[Event]


Lane: TypeAlias = str | dict[str, Any]
"""Where something happens: with a cell's users, in a process, in a cell's database, or in the service."""


Arrow = TypedDict(
    "Arrow",
    {
        "id": "MessageId",
        "from": "Lane",
        "to": "Lane",
        "says": "str",
        "lease": "NotRequired[str]",
        "sent": "int",
        "ended": "NotRequired[int]",
        "how": 'NotRequired[Literal["arrived", "lost", "ignored"]]',
    },
)
"""A message on its way; positions are those of events, from 0."""


FiredView = TypedDict(
    "FiredView",
    {
        "machine": 'Literal["claim", "lease"]',
        "of": "str",
        "edge": "NotRequired[int]",
        "from": "str",
        "event": "str",
        "to": "str",
    },
)
"""An edge of the engine's tables that fired; `edge` is absent where a rule that is off let happen what the table lacks."""


class Entry(TypedDict):
    """What happened by one event."""

    position: int
    event: Event
    at_micros: int
    says: str
    lane: Lane
    sent: list[Arrow]
    arrived: NotRequired[MessageId]
    lost: list[MessageId]
    fired: list[FiredView]
    fault: bool
    violation: NotRequired[str]


class Marks(TypedDict):
    """Where a run is worth looking at: positions of events."""

    faults: list[int]
    violation: NotRequired[int]


class ClaimView(TypedDict):
    """A claim; `row_before` is the row of a replace that it came from before."""

    name: str
    cell: int
    status: Literal["Active", "Creating", "Destroying", "Replacing"]
    row: NotRequired[int]
    row_before: NotRequired[int]
    lease: NotRequired[str]
    updated_micros: int


class LeaseView(TypedDict):
    """A lease."""

    lease: str
    number: int
    cell: int
    status: Literal["Outstanding", "Committed", "RolledBack"]
    fence: int
    age_micros: int
    names: list[str]


class RowView(TypedDict):
    """A committed row; `is_stray` where it was written past the claims."""

    row: int
    name: str
    age_micros: int
    is_stray: bool


class LeaseRowView(TypedDict):
    """The committed row of a lease."""

    lease: str
    age_micros: int


class TransactionView(TypedDict):
    """A transaction that is not at its end; writes are row, name before, name after."""

    worker: int
    state: Literal["open", "committing", "orphaned"]
    writes: list[list[int | str | None]]
    lease: NotRequired[str]


Phase: TypeAlias = Literal[
    "validate",
    "open",
    "write",
    "begin",
    "await_begin",
    "write_lease",
    "commit",
    "await_database",
    "commit_lease",
    "await_commit",
    "delete_row",
    "abort",
    "find_lease",
    "await_found",
    "roll_back_lease",
    "await_rollback",
]
"""What a save does next, or waits for."""

Told: TypeAlias = str | dict[str, Any]
"""What a user was told; a refusal with its reason, as on the wire."""


class WorkerView(TypedDict):
    """A worker."""

    change: NotRequired[Change]
    phase: NotRequired[Phase]
    lease: NotRequired[str]
    is_ready: bool
    told: NotRequired[Told]


ReconcilerStep: TypeAlias = dict[str, Any]
"""What a reconciler does next; times are microseconds since 1970."""


class ReconcilerSummary(TypedDict):
    """What a run of reconciliation did, in counts; `lost` are leases whose claims are gone though their rows are there."""

    leases_seen: int
    committed: int
    rolled_back: int
    settled_meanwhile: int
    looked_up: int
    forgotten: int
    lost: list[str]
    rows_deleted: int
    failed: int
    incomplete: bool


class ReconcilerView(TypedDict):
    """A reconciler: what it does next, where it is at a run, and what its last run did."""

    step: NotRequired[ReconcilerStep]
    is_waiting: bool
    last: NotRequired[ReconcilerSummary]


class VerifierReport(TypedDict):
    """What a run of verification saw and did, in counts."""

    dry_run: bool
    pages: int
    rows: int
    claims: int
    records: int
    updates: int
    rows_recent: int
    records_recent: int
    records_held: int
    missing: int
    different: int
    extra: int
    created: int
    replaced: int
    destroyed: int
    gone: int
    invalid: int
    other_cell: int
    other_row: int
    busy: int
    changed: int
    recent: int
    failed: int


class VerifierView(TypedDict):
    """A verifier: what it does next, where it is at a run, and what its last run did."""

    step: NotRequired[
        Literal[
            "find_bound",
            "list_records",
            "read_rows",
            "read_again",
            "begin",
            "write_lease",
            "commit",
            "delete_row",
            "roll_back",
            "page_done",
            "done",
        ]
    ]
    is_waiting: bool
    last: NotRequired[VerifierReport]


class CellView(TypedDict):
    """A cell."""

    cell: int
    mode: Mode
    is_cut_off: bool
    clock_ahead_micros: int
    rows: list[RowView]
    lease_rows: list[LeaseRowView]
    transactions: list[TransactionView]
    workers: list[WorkerView]
    reconcilers: list[ReconcilerView]
    verifier: VerifierView


class MessageView(TypedDict):
    """A message under way."""

    id: MessageId
    cell: int
    process: Process
    is_answer: bool
    copy: int
    says: str
    sent_micros: int
    can_arrive: bool


class Changed(TypedDict):
    """What the last event has changed."""

    names: list[str]
    leases: list[str]
    sent: list[MessageId]


Violation: TypeAlias = str | dict[str, Any]
"""What does not hold, by name."""


class View(TypedDict):
    """A world."""

    events: int
    now_micros: int
    names: list[str]
    is_up: bool
    claims: list[ClaimView]
    leases: list[LeaseView]
    cells: list[CellView]
    messages: list[MessageView]
    fired: list[FiredView]
    changed: Changed
    violation: NotRequired[list[Violation]]


class End(TypedDict):
    """How a scenario ends: claims at rest, committed rows, what users were told last, what is left."""

    claims: list[list[int]]
    rows: list[list[int]]
    told: list[list[int | Told]]
    outstanding: int
    lease_rows: int


class Scenario(TypedDict):
    """A schedule to watch."""

    id: str
    title: str
    watch: str
    end: End
    trace: Trace


class RuleInfo(TypedDict):
    """A rule that can be switched off, in one sentence."""

    rule: Rule
    summary: str


class Wish(TypedDict):
    """What a user asks for at some time; of one worker's wishes the earlier comes first."""

    cell: int
    worker: int
    change: Change


class Allowance(TypedDict):
    """How much trouble there is at the most, and how much of what can be started at any time."""

    drops: int
    duplicates: int
    time_outs: int
    crashes: int
    disconnects: int
    stops: int
    waits: int
    reconciliations: int
    verifications: int


class Plan(TypedDict):
    """A small world to explore: `before` is what has happened already; `drifts` are changes past the claims, by cell."""

    settings: Settings
    before: list[Event]
    wishes: list[Wish]
    drifts: list[list[int | Drift]]
    allowance: Allowance
    wait_seconds: int
    depth: int


class Progress(TypedDict):
    """How far an exploration has come; `depth` is the length of the schedules that are looked at now."""

    states: int
    events: int
    depth: int
    open: int
    is_cut_off: bool
    is_finished: bool


class Found(TypedDict):
    """A violation in words, and one of the shortest traces to it, as JSON."""

    violation: str
    trace: str


Edge = TypedDict(
    "Edge",
    {
        "from": "str",
        "event": "str",
        "to": "str",
    },
)
"""An edge of a machine: from a state, by an event, to a state."""


class TransitionTables(TypedDict):
    """The engine's tables, in the order in which `FiredView.edge` counts."""

    claim: list[Edge]
    lease: list[Edge]
