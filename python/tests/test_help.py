"""Tests of what `help` shows of the package: no secrets, and no addresses of objects."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import pydoc
from collections.abc import Iterator

import pytest

import leasehold
from leasehold.client import AsyncClient, Client

# The longest default value that a reader of a signature takes in.
MOST_CHARACTERS = 40


def signatures() -> Iterator[tuple[str, inspect.Signature]]:
    """Yield the signatures of all public functions, classes and methods of the package, by name."""
    for module in pkgutil.walk_packages(leasehold.__path__, f"{leasehold.__name__}."):
        if "_pb2" in module.name or module.name.endswith("__main__"):
            continue
        for name, found in vars(importlib.import_module(module.name)).items():
            if name.startswith("_") or not str(getattr(found, "__module__", "")).startswith("leasehold"):
                continue
            members = inspect.getmembers(found, callable) if inspect.isclass(found) else []
            public = [(member, value) for member, value in members if member == "__init__" or not member.startswith("_")]
            for path, value in [(name, found), *((f"{name}.{member}", value) for member, value in public)]:
                # Some classes of the extension have no signature.
                try:
                    yield f"{module.name}.{path}", inspect.signature(value)
                except (TypeError, ValueError):
                    continue


def test_defaults_are_short_and_show_no_address() -> None:
    found = {name: signature for name, signature in signatures() if "leasehold." in name}
    assert "leasehold.client._synchronous.Client.from_environment" in found
    for name, signature in found.items():
        for parameter in signature.parameters.values():
            shown = repr(parameter.default)
            has_default = parameter.default is not parameter.empty
            assert not has_default or (len(shown) <= MOST_CHARACTERS and " at 0x" not in shown), (name, parameter.name)


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_help_shows_no_variable_of_the_environment(client: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_SOME_VARIABLE", "some secret")
    shown = pydoc.plain(pydoc.render_doc(client))
    assert "from_environment" in shown
    assert "secret" not in shown.replace("secrets", "")
