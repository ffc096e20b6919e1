//! The database of a cell: rows, lease rows, open transactions with their locks, and a replica that
//! lags behind.

use std::collections::VecDeque;

use leasehold_core::lease::LeaseId;
use leasehold_core::reconcile::LocalRow;
use leasehold_core::time::Timestamp;
use smallvec::SmallVec;

use crate::event::Change;
use crate::settings::{Clock, Rule, Thresholds, WorldSettings};

/// A row of the table `users`, the only table with names. Each row has one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The primary key of the row.
    pub id: u32,
    /// The number of the row's name, which is unique in this database.
    pub name: u8,
    /// The time of the row's last write, by this database's clock.
    pub updated_at: Timestamp,
    /// True if plain SQL wrote the row and bypassed the claims. Such a row need not have a claim.
    pub is_stray: bool,
}

/// A change that a transaction makes to the name of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    /// The primary key of the row.
    pub row: u32,
    /// The number of the row's name before the change; `None` for a new row.
    pub before: Option<u8>,
    /// The number of the row's name after the change; `None` for a deleted row.
    pub after: Option<u8>,
}

/// The changes that one transaction makes.
pub type Writes = SmallVec<[Write; 2]>;

/// The state of a transaction that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionState {
    /// The transaction has begun and can still be rolled back.
    Open,
    /// The database has received the COMMIT.
    Committing,
    /// The database has received the COMMIT, and the worker has lost its connection.
    Orphaned,
}

/// A transaction of a worker that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transaction {
    /// The number of the worker that began the transaction.
    pub worker: u8,
    /// The time of the transaction's BEGIN, by this database's clock.
    pub begun_at: Timestamp,
    /// The time at which the transaction wrote its rows, by this database's clock.
    pub written_at: Timestamp,
    /// The rows and names that the transaction changes. All of them are locked.
    pub writes: Writes,
    /// The lease row that the transaction writes, `None` before it has written one.
    pub lease: Option<LocalRow>,
    /// The state of the transaction.
    pub state: TransactionState,
}

/// The result of an attempt to write rows in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The rows are written and locked.
    Done,
    /// Another transaction holds one of the locks, so the attempt can be repeated later.
    Blocked,
    /// The database refused the rows.
    Refused(RowRefusal),
}

/// The reason for which the database refused rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowRefusal {
    /// Another row has one of the names.
    NameTaken,
    /// A row has changed since the save read it.
    RowChanged,
}

/// The reason for which the database refused a COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitRefusal {
    /// The transaction's lease is older than `commit_within_seconds` (R04).
    LeaseTooOld,
    /// The transaction is older than `transaction_within_seconds`.
    TransactionTooOld,
}

/// A change that the replica has not applied yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ReplicationEntry {
    at: Timestamp,
    id: u32,
    row: Option<Row>,
}

/// Rows in the order of their primary keys.
pub type Table = Vec<Row>;

/// The database of one cell.
#[derive(Clone, Debug, Hash)]
pub struct Database {
    clock: Clock,
    rows: Table,
    next_row: u32,
    lease_rows: Vec<LocalRow>,
    transactions: Vec<Transaction>,
    replica: Table,
    replication_log: VecDeque<ReplicationEntry>,
}

/// Returns the row with this primary key, `None` if there is none. The rows must be in the order of
/// keys.
pub fn row_by_id(rows: &[Row], id: u32) -> Option<&Row> {
    rows.binary_search_by_key(&id, |row| row.id).ok().and_then(|at| rows.get(at))
}

fn put_row(rows: &mut Table, id: u32, row: Option<Row>) {
    match (rows.binary_search_by_key(&id, |row| row.id), row) {
        (Ok(at), Some(row)) => rows.iter_mut().skip(at).take(1).for_each(|present| *present = row),
        (Ok(at), None) => _ = rows.remove(at),
        (Err(at), Some(row)) => rows.insert(at, row),
        (Err(_), None) => {}
    }
}

impl Database {
    /// Creates an empty database with this clock.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            rows: Table::new(),
            next_row: 1,
            lease_rows: Vec::new(),
            transactions: Vec::new(),
            replica: Table::new(),
            replication_log: VecDeque::new(),
        }
    }

    /// Returns the time that the database's clock shows when the world's clock shows `now`. `start`
    /// is the time that the world's clock showed before the first event. Both are in microseconds
    /// since 1970.
    pub fn now(&self, start: u64, now: u64) -> Timestamp {
        let passed = i128::from(now.saturating_sub(start));
        let ahead = i128::from(self.clock.ahead_seconds) * 1_000_000;
        let fast = passed * i128::from(self.clock.fast_ppm) / 1_000_000;
        let shown = i128::from(start) + passed + ahead + fast;
        Timestamp::from_micros(u64::try_from(shown).unwrap_or_default())
    }

    /// Returns the committed rows, in the order of their primary keys.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the committed lease rows.
    pub fn lease_rows(&self) -> &[LocalRow] {
        &self.lease_rows
    }

    /// Returns the transactions that have not ended.
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }

    /// Returns the committed row with this name, `None` if no row has it.
    pub fn row_by_name(&self, name: u8) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Returns the next primary key for a new row. A key is never given out twice, like the values
    /// of an SQL sequence.
    pub fn allocate_key(&mut self) -> u32 {
        self.next_row += 1;
        self.next_row - 1
    }

    /// Returns the writes that a change needs, given the committed rows. Returns `None` if the
    /// change has no effect, is invalid, names one row twice, or names a missing row. `keys` are
    /// the primary keys for new rows.
    pub fn plan(&self, change: Change, keys: [u32; 2]) -> Option<Writes> {
        let name = |id: u32| row_by_id(&self.rows, id).map(|row| row.name);
        let [first, second] = keys;
        let write = |row, before, after| Write { row, before, after };
        let writes: Writes = match change {
            Change::Invalid => return None,
            Change::Create(name) => [write(first, None, Some(name))].into_iter().collect(),
            Change::CreateTwo([one, two]) => {
                [write(first, None, Some(one)), write(second, None, Some(two))].into_iter().collect()
            }
            Change::Rename { row, name: new } => [write(row, Some(name(row)?), Some(new))].into_iter().collect(),
            Change::Delete(row) => [write(row, Some(name(row)?), None)].into_iter().collect(),
            Change::Swap([one, two]) => {
                let (of_one, of_two) = (name(one)?, name(two)?);
                [write(one, Some(of_one), Some(of_two)), write(two, Some(of_two), Some(of_one))].into_iter().collect()
            }
            Change::Transfer { from, to } => {
                let (of_from, of_to) = (name(from)?, name(to)?);
                [write(from, Some(of_from), None), write(to, Some(of_to), Some(of_from))].into_iter().collect()
            }
        };
        let is_change = writes.iter().any(|write| write.before != write.after);
        let is_twice = matches!(&writes[..], [one, two] if one.row == two.row);
        (is_change && !is_twice).then_some(writes)
    }

    /// Begins a transaction of a worker.
    pub fn begin(&mut self, worker: u8, now: Timestamp) {
        self.transactions.push(Transaction {
            worker,
            begun_at: now,
            written_at: now,
            writes: Writes::new(),
            lease: None,
            state: TransactionState::Open,
        });
    }

    /// Returns the open transaction of a worker, `None` if the worker has none or has sent COMMIT.
    pub fn open(&mut self, worker: u8) -> Option<&mut Transaction> {
        self.transactions.iter_mut().find(|tx| tx.worker == worker && tx.state == TransactionState::Open)
    }

    /// Returns true if the worker has a transaction whose COMMIT it has not sent.
    pub fn has_open(&self, worker: u8) -> bool {
        self.transactions.iter().any(|tx| tx.worker == worker && tx.state == TransactionState::Open)
    }

    /// Returns true if the database has received a COMMIT from this worker and has not performed it
    /// yet.
    pub fn is_committing(&self, worker: u8) -> bool {
        self.transactions.iter().any(|tx| tx.worker == worker && tx.state != TransactionState::Open)
    }

    /// Returns true if the database has a pending COMMIT from this worker, and the worker has lost
    /// its connection.
    pub fn is_orphaned(&self, worker: u8) -> bool {
        self.transactions.iter().any(|tx| tx.worker == worker && tx.state == TransactionState::Orphaned)
    }

    /// Returns true if no other transaction holds a lock that the worker's writes need.
    pub fn is_free(&self, worker: u8, writes: &[Write]) -> bool {
        let others = self.transactions.iter().filter(|tx| tx.worker != worker || tx.state != TransactionState::Open);
        others.flat_map(|tx| &tx.writes).all(|held| {
            writes.iter().all(|write| {
                let names = [write.before, write.after];
                let is_named = |name: Option<u8>| name.is_some() && names.contains(&name);
                held.row != write.row && !is_named(held.before) && !is_named(held.after)
            })
        })
    }

    /// Returns true if a transaction that has not ended has written the row with this primary key.
    pub fn is_being_written(&self, id: u32) -> bool {
        self.transactions.iter().flat_map(|tx| &tx.writes).any(|write| write.row == id)
    }

    /// Writes rows in a worker's open transaction, or returns the obstacle.
    pub fn write(&mut self, worker: u8, writes: &Writes, now: Timestamp) -> WriteResult {
        if !self.is_free(worker, writes) {
            return WriteResult::Blocked;
        }
        let is_own = |id: u32| writes.iter().any(|write| write.row == id);
        let is_stale = |write: &Write| row_by_id(&self.rows, write.row).map(|row| row.name) != write.before;
        let is_taken = |name: u8| self.row_by_name(name).is_some_and(|row| !is_own(row.id));
        let is_doubled = matches!(&writes[..], [one, two] if one.after.is_some() && one.after == two.after);
        if writes.iter().any(is_stale) {
            return WriteResult::Refused(RowRefusal::RowChanged);
        }
        if is_doubled || writes.iter().any(|write| write.after.is_some_and(is_taken)) {
            return WriteResult::Refused(RowRefusal::NameTaken);
        }
        if let Some(open) = self.open(worker) {
            open.writes.clone_from(writes);
            open.written_at = now;
        }
        WriteResult::Done
    }

    /// Passes the COMMIT of a worker's open transaction to the database, which performs it later.
    pub fn send_commit(&mut self, worker: u8) {
        if let Some(open) = self.open(worker) {
            open.state = TransactionState::Committing;
        }
    }

    /// Ends a worker's connection. The worker's open transaction is rolled back; a COMMIT that the
    /// database has received may still succeed.
    pub fn lose_connection(&mut self, worker: u8) {
        self.transactions.retain(|tx| tx.worker != worker || tx.state != TransactionState::Open);
        for tx in self.transactions.iter_mut().filter(|tx| tx.worker == worker) {
            tx.state = TransactionState::Orphaned;
        }
    }

    /// Performs the first pending COMMIT of a worker, or refuses it as too late. Returns the
    /// transaction and the result, `None` if no COMMIT is pending.
    pub fn finish_commit(
        &mut self,
        worker: u8,
        now: Timestamp,
        by: &WorldSettings,
    ) -> Option<(Transaction, Result<(), CommitRefusal>)> {
        let tx = self.take_committing(worker, |state| state != TransactionState::Open)?;
        let result = check_commit_age(&tx, now, &by.thresholds, by.rules_off.is_on(Rule::CommitGuard));
        if result.is_ok() {
            for write in &tx.writes {
                let row =
                    write.after.map(|name| Row { id: write.row, name, updated_at: tx.written_at, is_stray: false });
                self.apply(write.row, row, now, by);
            }
            self.lease_rows.extend(tx.lease);
        }
        Some((tx, result))
    }

    /// Abandons a pending COMMIT whose worker has lost its connection, and returns its transaction.
    /// Returns `None` if there is none.
    pub fn lose_commit(&mut self, worker: u8) -> Option<Transaction> {
        self.take_committing(worker, |state| state == TransactionState::Orphaned)
    }

    fn take_committing(&mut self, worker: u8, matches: impl Fn(TransactionState) -> bool) -> Option<Transaction> {
        let at = self.transactions.iter().position(|tx| tx.worker == worker && matches(tx.state))?;
        Some(self.transactions.remove(at))
    }

    /// Writes the row with this primary key at once, or deletes it if `row` is `None`, like a
    /// statement outside any transaction.
    pub fn apply(&mut self, id: u32, row: Option<Row>, now: Timestamp, by: &WorldSettings) {
        put_row(&mut self.rows, id, row);
        if by.thresholds.replica_lag_seconds > 0 {
            self.replication_log.push_back(ReplicationEntry { at: now, id, row });
        }
    }

    /// Marks a row as covered by a claim, because verification has claimed `name` for it. A row
    /// that has another name by now stays as it is.
    pub fn adopt(&mut self, id: u32, name: u8) {
        self.rows.iter_mut().filter(|row| row.id == id && row.name == name).for_each(|row| row.is_stray = false);
    }

    /// Writes the lease row of a correction in a transaction of its own.
    ///
    /// # Errors
    /// The lease is older than `commit_within_seconds` (R04).
    pub fn write_lease_row(&mut self, row: LocalRow, now: Timestamp, by: &WorldSettings) -> Result<(), CommitRefusal> {
        if by.rules_off.is_on(Rule::CommitGuard) && is_too_old(row, now, &by.thresholds) {
            return Err(CommitRefusal::LeaseTooOld);
        }
        self.lease_rows.push(row);
        Ok(())
    }

    /// Deletes the lease row of a lease, if there is one.
    pub fn delete_lease_row(&mut self, lease: LeaseId) {
        self.lease_rows.retain(|row| row.lease != lease);
    }

    /// Returns true if the replica has changes to apply.
    pub fn is_behind(&self) -> bool {
        !self.replication_log.is_empty()
    }

    /// Applies the next change of the database to the replica.
    pub fn replicate(&mut self) {
        if let Some(entry) = self.replication_log.pop_front() {
            put_row(&mut self.replica, entry.id, entry.row);
        }
    }

    /// Returns the rows that verification reads: those of the replica, or of the database if there
    /// is no replica. The replica first applies every change that is older than the allowed lag.
    pub fn read(&mut self, now: Timestamp, by: &WorldSettings) -> &[Row] {
        let lag = by.thresholds.replica_lag_seconds;
        if lag == 0 {
            return &self.rows;
        }
        let oldest = now.minus_micros(micros(lag));
        while self.replication_log.front().is_some_and(|entry| entry.at < oldest) {
            self.replicate();
        }
        &self.replica
    }
}

/// Converts seconds to microseconds.
pub fn micros(seconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000
}

fn is_older(since: Timestamp, now: Timestamp, seconds: u32) -> bool {
    now.micros_since(since) > micros(seconds)
}

fn is_too_old(lease: LocalRow, now: Timestamp, by: &Thresholds) -> bool {
    is_older(lease.created_at, now, by.commit_within_seconds)
}

/// Checks the ages of a transaction and its lease at COMMIT, as the database's own guards do.
fn check_commit_age(
    tx: &Transaction,
    now: Timestamp,
    by: &Thresholds,
    has_lease_fence: bool,
) -> Result<(), CommitRefusal> {
    if has_lease_fence && tx.lease.is_some_and(|lease| is_too_old(lease, now, by)) {
        return Err(CommitRefusal::LeaseTooOld);
    }
    if is_older(tx.begun_at, now, by.transaction_within_seconds) {
        return Err(CommitRefusal::TransactionTooOld);
    }
    Ok(())
}
