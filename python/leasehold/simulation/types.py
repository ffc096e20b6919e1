"""Types of the JSON values that a simulation accepts and returns. Names equal those in traces.

A variant with fields is a dict with its name as the only key: `{"save": {"cell": 1, "worker": 0, "change": {"create": 0}}}`.
A variant without fields is its name: `"stop_service"`. Cells are numbered from 1; workers, rows and names from 0.
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
"""A process of a cell. Workers save rows, reconcilers settle abandoned leases, the verifier compares tables."""

Change: TypeAlias = str | dict[str, Any]
"""The change that a user saves. Rows and names are numbers."""

Drift: TypeAlias = dict[str, Any]
"""A change of rows that bypasses the claims, such as plain SQL."""

MessageId: TypeAlias = int
"""The id of a message between a cell and the service."""

Event: TypeAlias = str | dict[str, Any]
"""One event of a simulated world: a save, a step of a process, a delivery, a fault, or the passing of time."""

Rule: TypeAlias = Literal[
    "lease_exclusivity",
    "ownership",
    "settled_lease_memory",
    "replay_keys",
    "commit_guard",
    "skip_recent_rows",
    "skip_recent_claims",
    "observed_silence",
    "grace",
    "whole_duration",
    "fence_check",
    "one_worker",
    "shared_lane",
    "early_count",
    "settle_fence",
    "settle_memory",
    "request_ids",
]
"""A rule of the protocol that a simulation can switch off, to show which promise it protects."""

Mode: TypeAlias = Literal["before_commit", "lease_first"]
"""The moment at which a cell begins the lease of a save: before its local COMMIT, or before its local BEGIN."""


class Thresholds(TypedDict):
    """The durations that the protocol uses, such as the age from which a lease is stale."""

    stale_after_seconds: int
    commit_within_seconds: int
    transaction_within_seconds: int
    recent_within_seconds: int
    remember_within_seconds: int
    replica_lag_seconds: int


class Clock(TypedDict):
    """The difference between the clock of a cell's database and the service's clock."""

    ahead_seconds: int
    fast_ppm: int


class Rates(TypedDict):
    """The relative weights with which random events are drawn; 0 means never."""

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


class LockSettings(TypedDict):
    """The locks of a simulated world or the lanes of its queue, and the terms of every session."""

    count: int
    lanes: NotRequired[int]
    duration_seconds: int
    grace_seconds: int
    tick_millis: int


class Settings(TypedDict):
    """The settings of a simulated world. A list with fewer items than cells is repeated."""

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
    locks: NotRequired[LockSettings]


class PartialSettings(TypedDict, total=False):
    """The settings of a simulated world that differ from the defaults. A list with fewer items than cells is repeated."""

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
    locks: LockSettings


class Trace(TypedDict):
    """A recorded run: the settings of a simulated world, and its events."""

    version: int
    settings: Settings
    events: list[Event]


Lane: TypeAlias = str | dict[str, Any]
"""The column of an event in the timeline: the users of a cell, a process, the database of a cell, or the service."""


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
"""A message between a cell and the service. `sent` and `ended` are positions of events: the begin and end of its transit."""


TransitionView = TypedDict(
    "TransitionView",
    {
        "machine": 'Literal["claim", "lease", "session", "lock", "request"]',
        "of": "str",
        "edge": "NotRequired[int]",
        "from": "str",
        "event": "str",
        "to": "str",
    },
)
"""A transition of a claim, a lease, a session, a lock or a request. `edge` is missing if the table has no such edge, because
a rule is switched off."""


class Entry(TypedDict):
    """One event of a run, with its description and its effects."""

    position: int
    event: Event
    at_micros: int
    says: str
    lane: Lane
    sent: list[Arrow]
    arrived: NotRequired[MessageId]
    lost: list[MessageId]
    fired: list[TransitionView]
    fault: bool
    violation: NotRequired[str]


class Marks(TypedDict):
    """The positions of the faults and of the violation of a run."""

    faults: list[int]
    violation: NotRequired[int]


class ClaimView(TypedDict):
    """A claim in the simulated service. `row_before` is the previous row of a claim that is being replaced."""

    name: str
    cell: int
    status: Literal["Active", "Creating", "Destroying", "Replacing"]
    row: NotRequired[int]
    row_before: NotRequired[int]
    lease: NotRequired[str]
    updated_micros: int


class LeaseView(TypedDict):
    """A lease in the simulated service."""

    lease: str
    number: int
    cell: int
    status: Literal["Outstanding", "Committed", "RolledBack"]
    fence: int
    age_micros: int
    names: list[str]


class RowView(TypedDict):
    """A committed row of a cell's table. `is_stray` is true if plain SQL wrote the row without changing its claim."""

    row: int
    name: str
    age_micros: int
    is_stray: bool


class LeaseRowView(TypedDict):
    """The committed row of a lease in a cell's own database."""

    lease: str
    age_micros: int


class TransactionView(TypedDict):
    """An open transaction of a cell's database. Each write is a list of row, old name and new name."""

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
"""The next step of a worker's save, or the event that the save waits for."""

SaveResult: TypeAlias = str | dict[str, Any]
"""The result of a save as reported to the user. The result of a refused save contains the reason code."""


class WorkerView(TypedDict):
    """The state of a worker process of a cell."""

    change: NotRequired[Change]
    phase: NotRequired[Phase]
    lease: NotRequired[str]
    is_ready: bool
    told: NotRequired[SaveResult]


ReconcilerStep: TypeAlias = dict[str, Any]
"""The next step of a reconciler process. Times are microseconds since 1970."""


class ReconcilerSummary(TypedDict):
    """Counts of a reconciliation run. `lost` lists leases whose rows exist although their claims were rolled back."""

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
    """The state of a reconciler: the next step of a current run, and the counts of the last run."""

    step: NotRequired[ReconcilerStep]
    is_waiting: bool
    last: NotRequired[ReconcilerSummary]


class VerifierReport(TypedDict):
    """The counts of one verification run."""

    dry_run: bool
    over_destroy_limit: bool
    pages: int
    pages_surveyed: int
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
    """The state of a verifier: the next step of a current run, and the counts of the last run."""

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


class ClientView(TypedDict):
    """The state of a cell's client of locks or of a queue. `standing` is that of its session by the client's own clock."""

    task: NotRequired[str | dict[str, Any]]
    phase: NotRequired[str]
    fence: NotRequired[int]
    batch: NotRequired[str]
    session: NotRequired[int]
    standing: NotRequired[Literal["safe", "jeopardy", "lost"]]
    is_paused: bool
    is_renewing: bool
    told: NotRequired[str]


class FrontView(TypedDict):
    """The state of a cell's front: the request that it submits, and the result of the last submit."""

    submits: NotRequired[str]
    is_waiting: bool
    told: NotRequired[str | dict[str, int]]


class CellView(TypedDict):
    """The state of a simulated cell: its database and its processes."""

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
    client: NotRequired[ClientView]
    front: NotRequired[FrontView]


class SessionView(TypedDict):
    """A session in the simulated service. It expires at the tick `expires_at_ticks` without a renewal."""

    session: str
    cell: int
    number: int
    status: Literal["Live", "Closed", "Expired", "Evicted"]
    silent_ticks: NotRequired[int]
    expires_at_ticks: int


class LockView(TypedDict):
    """A lock in the simulated service, and the resource that it guards. `waiting` lists the cells of the waiting clients."""

    lock: str
    status: Literal["Absent", "Free", "Held", "Withheld"]
    holder: NotRequired[int]
    fence: NotRequired[int]
    waiting: list[int]
    newest_fence: NotRequired[int]
    writes: int
    refused: int


class LaneView(TypedDict):
    """A lane of the simulated queue, and the resource that it is about. `waiting` is the number of waiting requests."""

    lane: str
    status: Literal["idle", "ready", "delayed", "taken"]
    holder: NotRequired[int]
    fence: NotRequired[int]
    waiting: int
    newest_fence: NotRequired[int]
    writes: int
    refused: int


class RequestView(TypedDict):
    """A request of the simulated queue. A poison is an update that ends each worker that works on it."""

    number: int
    lane: str
    kind: Literal["create", "update", "poison"]
    status: Literal["New", "InProgress", "Complete", "Error"]
    attempts: int
    max_attempts: int


class LocksView(TypedDict):
    """The sessions of a simulated world, and its locks or its queue."""

    sessions: list[SessionView]
    locks: list[LockView]
    lanes: NotRequired[list[LaneView]]
    requests: NotRequired[list[RequestView]]
    is_paused: bool
    undecided: int
    ahead_seconds: int


class MessageView(TypedDict):
    """A message in transit between a cell and the service."""

    id: MessageId
    cell: int
    process: Process
    is_answer: bool
    copy: int
    says: str
    sent_micros: int
    can_arrive: bool


class Changed(TypedDict):
    """The names, leases and messages that the last event of the run changed."""

    names: list[str]
    leases: list[str]
    sent: list[MessageId]


Violation: TypeAlias = str | dict[str, Any]
"""An invariant of the store or a promise to users that the run has violated."""


class View(TypedDict):
    """The state of a simulated world at one position of a run.

    `take_backs` lists leases that the service will roll back, because no caller can receive the answer of their begin.
    """

    events: int
    now_micros: int
    names: list[str]
    is_up: bool
    claims: list[ClaimView]
    leases: list[LeaseView]
    take_backs: NotRequired[list[str]]
    cells: list[CellView]
    messages: list[MessageView]
    fired: list[TransitionView]
    changed: Changed
    locks: NotRequired[LocksView]
    violation: NotRequired[list[Violation]]


class End(TypedDict):
    """The final state of a scenario: active claims, committed rows, last results of saves, and remaining leases.

    For a scenario of locks or of a queue: the last results of clients, and the accepted and refused writes to each resource.
    `requests` has the states of requests.
    """

    claims: list[list[int]]
    rows: list[list[int]]
    told: list[list[int | SaveResult]]
    outstanding: int
    lease_rows: int
    worked: NotRequired[list[list[int | str]]]
    requests: NotRequired[list[list[int | str]]]
    writes: NotRequired[list[list[int]]]


class Scenario(TypedDict):
    """A recorded run with a title and an explanation."""

    id: str
    title: str
    watch: str
    end: End
    trace: Trace


class RuleInfo(TypedDict):
    """A rule that can be switched off, with a summary in one sentence."""

    rule: Rule
    summary: str


class Wish(TypedDict):
    """A save that a user requests in the world that an `Explorer` searches. The saves of one worker keep their order."""

    cell: int
    worker: int
    change: Change


class Allowance(TypedDict):
    """The maximum numbers of faults in an exploration, and of reconciliations and verifications that may start at any time."""

    drops: int
    duplicates: int
    cancels: int
    time_outs: int
    crashes: int
    disconnects: int
    stops: int
    waits: int
    reconciliations: int
    verifications: int
    ticks: int
    renewals: int
    pauses: int
    jumps: int


class Plan(TypedDict):
    """A small world to explore. `before` lists events to play first; `drifts` lists changes that bypass the claims, by cell.

    `works` lists works under locks, each as cell and lock; `starts` lists submits, and works on a queue.
    """

    settings: Settings
    before: list[Event]
    wishes: list[Wish]
    drifts: list[list[int | Drift]]
    works: NotRequired[list[list[int]]]
    starts: NotRequired[list[Event]]
    allowance: Allowance
    wait_seconds: int
    depth: int


class Progress(TypedDict):
    """The counters of an exploration. `depth` is the number of events in the schedules that are being extended."""

    states: int
    events: int
    depth: int
    open: int
    is_cut_off: bool
    is_finished: bool


class Found(TypedDict):
    """A violation that an exploration has found: its description, and one of the shortest traces to it as JSON."""

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
"""An edge of a state machine: a state, an event and the next state."""


class TransitionTables(TypedDict):
    """The engine's transition tables. `TransitionView.edge` is an index into them."""

    claim: list[Edge]
    lease: list[Edge]
    session: list[Edge]
    lock: list[Edge]
    request: list[Edge]
