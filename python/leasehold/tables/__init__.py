"""Verification of a cell's tables against a claims server.

- `leasehold.tables.postgres` reads a table in PostgreSQL.
- `leasehold.tables.files` reads CSV files, Parquet files and Arrow data.
- `verify_table` compares either with the claims, and corrects the claims if requested.
"""

from leasehold.tables._keys import Key
from leasehold.tables._samples import Sample
from leasehold.tables._table import RowReader, Table
from leasehold.tables._verify import OnFailure, OnProgress, VerificationResult, verify_table

__all__ = ["Key", "OnFailure", "OnProgress", "RowReader", "Sample", "Table", "VerificationResult", "verify_table"]
