"""A table of a cell's own database, or a dump of one, verified against the claims server.

`leasehold.tables.postgres` reads a table where it is, `leasehold.tables.files` reads CSV, Parquet and Arrow.
"""

from leasehold.tables._table import RowReader, Table
from leasehold.tables._verify import Failed, Progress, Sample, Verified, verify_table

__all__ = ["Failed", "Progress", "RowReader", "Sample", "Table", "Verified", "verify_table"]
