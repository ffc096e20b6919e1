//! Golden vectors: scenarios with the service's answer to each step, in text files. Every host of the
//! engine plays the same files.
//!
//! A file is a list of scenarios. Each has a heading with the behaviours that it proves, and begins with
//! an empty service that has the cells 1, 2 and 3:
//!
//! ```text
//! ## B08 created claims are readable from begin
//! # Lines that begin with a # are for people.
//!
//! begin 1 create USERNAMES "Alice" USER:7 USERS:7
//! ----
//! begun L1 fence=1
//! cell 1: L1
//!   USERNAMES "Alice" LEASE_CREATING USER:7 from USERS:7 under L1
//! ```
//!
//! A step ends with `----`, and its expected output ends with the next blank line. The output is the
//! reply, then the whole state **if the step changed it** (`nothing` for an empty state). A step without
//! state lines therefore proves that it changed nothing. The state is read by the calls that clients
//! have: every outstanding lease and every record of every cell.
//!
//! | step | does |
//! |---|---|
//! | `begin CELL CLAIM… [key=TEXT]` | begins an update; `CLAIM` is `create` or `destroy`, then `[xN] BUCKET "value" [SUBJECT:id] [SOURCE:id] [data=TEXT]` |
//! | `commit CELL LEASE`, `rollback CELL LEASE` | settles; `LEASE` is `L1`, `unknown`, or a quoted text |
//! | `get BUCKET "value"` | reads one record |
//! | `classify BUCKET "value" …` | finds the cell of the first claim that matches |
//! | `leases CELL [limit=N] [since=LEASE or future] [next]` | lists leases; `next` continues after the last page |
//! | `records CELL SOURCE [types=BUCKET,…] [gt=ID] [lte=ID]` | lists records of one table |
//! | `verify CELL SOURCE [page=N] ROW…` | verifies a table; `ROW` is `row SOURCE:id`, then `BUCKET "value" SUBJECT:id` for each claim |
//! | `reconcile CELL remote=AGE [LEASE=AGE…]` | reconciles local rows; `AGE` is `fresh` or `stale`, of all leases and of each row |
//! | `restart` | kills the service and starts it again on its data |
//! | `pass SECONDS`, `forget` | moves the clock; forgets settled leases (both only with `hosts: core`) |
//! | `N times STEP` | repeats a step; `%` stands for the number of the repetition, or of the copy of `xN` |
//!
//! Leases are numbered in the order of their begins, and fences from the scenario's first one. An id is a
//! number (8 bytes), a quoted text, or `x` and hexadecimal digits. A text may be repeated: `"ab"*3`.
//! Types that have no name are written `bucket#99`, `subject#9:1`, `source#99:1`. More than 20 lines of
//! one kind are summed up.
//!
//! A rejection is written as its reason, `retry` if it has a time to wait before a retry, and each
//! offending claim. A rejection of the request's form also has its message.
//!
//! `UPDATE_VECTORS=1 cargo test -p leasehold-tests --test vectors` writes the core's answers into the
//! files: read the difference before you commit it.

mod core_host;
mod file;
mod golden;
mod host;
mod machines;
mod notation;
mod player;
#[cfg(not(target_family = "wasm"))]
mod server_host;
mod step;

pub use core_host::CoreHost;
pub use file::{Mismatch, Played, VectorFile};
pub use golden::golden_files;
pub use host::{BegunLease, BucketName, Host, HostRefusal, HostResult, ObservedRecord, RecordsQuery, Since};
pub use player::Player;
#[cfg(not(target_family = "wasm"))]
pub use server_host::ServerHost;
