"""Runs the docstring examples of `leasehold.client` and `leasehold.tables` as written, on the real server."""

from __future__ import annotations

import doctest
import importlib
from types import ModuleType

import pytest
from support.claims_server import ClaimsServer

import leasehold.client
import leasehold.queues
from leasehold.client import Client

MODULES = [
    "leasehold.client._memory",
    "leasehold.client._synchronous",
    "leasehold.client._asynchronous",
    "leasehold.client._async_lock_session",
    "leasehold.client._lock_session",
    "leasehold.client._queue_methods",
    "leasehold.client._taking",
    "leasehold.tables._verify",
]


def examples(module: ModuleType) -> list[doctest.DocTest]:
    return [found for found in doctest.DocTestFinder().find(module) if found.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_as_written(name: str, embedded: ClaimsServer) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner()
    found = examples(module)
    assert found
    with Client(embedded.url, cell_id=1) as client:
        for test in found:
            names = {**vars(leasehold.queues), **vars(leasehold), **vars(leasehold.client)}
            test.globs.update(names, client=client, server=embedded.url)
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
