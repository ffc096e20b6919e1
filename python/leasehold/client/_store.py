"""The store that a client accepts."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.client._calls import Headers
from leasehold.errors import OtherStoreError

# Metadata key of the id of a store. A response names the server's store, a request the store that the client expects.
STORE_ID = "leasehold-store-id"


@dataclass(frozen=True)
class ExpectedStore:
    """The id of the store that a client accepts; None for any store."""

    store_id: str | None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The request metadata by which a server with another store refuses the call."""
        return () if self.store_id is None else ((STORE_ID, self.store_id),)

    def check(self, headers: Headers) -> OtherStoreError | None:
        """Return the error for a response that names another store or none; None if it names the expected one."""
        found = headers.get(STORE_ID)
        if self.store_id is None or found == self.store_id:
            return None
        return self._other(found)

    def mismatch(self, headers: Headers) -> OtherStoreError | None:
        """Return the error for a failed call whose answer names another store. A proxy's answer names none: return None."""
        return self.check(headers) if STORE_ID in headers else None

    def _other(self, found: str | bytes | None) -> OtherStoreError:
        if found is None:
            return OtherStoreError(
                f"the server does not tell its store, and `store_id` is {self.store_id}: "
                "use a server of this package's version or newer"
            )
        return OtherStoreError(f"the server has the store {found!s}, and `store_id` is {self.store_id}: check the address")
