"""The arguments of the simulation with their kinds: those of the package for JavaScript (`wasm/js/simulation/signatures.js`).

The ranges of the settings are those in which a world is possible (`simulation/src/settings.rs`).
"""

from __future__ import annotations

from typing import get_args

from leasehold._kinds import (
    INT32,
    UINT8,
    UINT16,
    UINT32,
    Kind,
    integer,
    items,
    members,
    optional,
    pair,
    variant,
    word,
)
from leasehold.simulation import types

MAX_STEPS = 1_000_000
"""The most events or states of one call: a million events need up to a gigabyte of memory."""

MAX_SEED = 2**53 - 1
"""The largest seed of a world, which a browser can read as well."""

SIZES: dict[str, tuple[int, int]] = {"cells": (1, 8), "workers": (1, 8), "reconcilers": (0, 4), "names": (1, 32)}
"""The least and the largest value of each number that sets the size of a world."""

STEPS = integer(0, MAX_STEPS)
POSITION = UINT32

_CELL = _WORKER = _NAME = _LOCK = _LANE = UINT8
_ROW = _MESSAGE = _SECONDS = UINT32


def _all(kind: Kind, names: str) -> dict[str, Kind]:
    """Return members that are all of one kind."""
    return dict.fromkeys(names.split(), kind)


RULE = word(*get_args(types.Rule))

_RENAME = members({"row": _ROW, "name": _NAME})

_CHANGE = variant(
    {
        "invalid": None,
        "create": _NAME,
        "create_two": pair(_NAME, _NAME),
        "rename": _RENAME,
        "delete": _ROW,
        "swap": pair(_ROW, _ROW),
        "transfer": members({"from": _ROW, "to": _ROW}),
    }
)

_DRIFT = variant({"insert": _NAME, "rename": _RENAME, "delete": _ROW})

_PROCESS = variant(
    {"worker": UINT8, "reconciler": UINT8, **dict.fromkeys(("verifier", "client", "keepalive", "front"))},
)

_OF_CELL = "restart_database partition heal replicate close pause resume evict serve fail_work give_back"
_OF_SERVICE = "take_back stop_service start_service forget pause_service resume_service tick decide"

EVENT = variant(
    {
        "save": members({"cell": _CELL, "worker": _WORKER, "change": _CHANGE}),
        **_all(members({"cell": _CELL, "process": _PROCESS}), "step time_out crash"),
        **_all(members({"cell": _CELL, "worker": _WORKER}), "finish_commit lose_commit disconnect"),
        **_all(_MESSAGE, "deliver drop duplicate cancel_call"),
        **_all(members({"cell": _CELL}), _OF_CELL),
        **dict.fromkeys(_OF_SERVICE.split()),
        "drift": members({"cell": _CELL, "drift": _DRIFT}),
        "wait": members({"seconds": _SECONDS}),
        "work": members({"cell": _CELL, "lock": _LOCK}),
        "force": _LOCK,
        "jump_clock": INT32,
        "submit": members({"cell": _CELL, "lane": _LANE, "kind": word("create", "update", "poison")}),
    }
)

_THRESHOLDS = members(_all(_SECONDS, " ".join(types.Thresholds.__annotations__)))

_LOCKS = members(
    {
        **_all(optional(UINT8), "count lanes"),
        **_all(optional(UINT32), "duration_seconds grace_seconds tick_millis"),
    }
)

SETTING_KINDS: dict[str, Kind] = {
    "seed": optional(integer(0, MAX_SEED)),
    **{name: optional(integer(*bounds)) for name, bounds in SIZES.items()},
    "modes": optional(items(word(*get_args(types.Mode)))),
    "clocks": optional(items(members(_all(INT32, "ahead_seconds fast_ppm")))),
    "rules_off": optional(items(RULE)),
    "thresholds": optional(_THRESHOLDS),
    "step_micros": optional(UINT32),
    "rates": optional(members(_all(UINT16, " ".join(types.Rates.__annotations__)))),
    "locks": optional(_LOCKS),
}

SETTINGS = members(SETTING_KINDS)

_ALLOWANCE = members(_all(optional(UINT8), " ".join(types.Allowance.__annotations__)))

PLAN = members(
    {
        "settings": SETTINGS,
        "before": optional(items(EVENT)),
        "wishes": items(members({"cell": _CELL, "worker": _WORKER, "change": _CHANGE})),
        "drifts": optional(items(pair(_CELL, _DRIFT))),
        "works": optional(items(pair(_CELL, _LOCK))),
        "starts": optional(items(EVENT)),
        "allowance": _ALLOWANCE,
        "wait_seconds": _SECONDS,
        "depth": UINT32,
    }
)

TRACE = members({"version": UINT32, "settings": SETTINGS, "events": items(EVENT)})
