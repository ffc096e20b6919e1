//! A cell's own database: rows, lease rows, open transactions with their locks, and a replica that
//! lags.

use std::collections::VecDeque;

use leasehold_core::lease::LeaseId;
use leasehold_core::reconcile::LocalRow;
use leasehold_core::time::Timestamp;
use smallvec::SmallVec;

use crate::event::Change;
use crate::settings::{Clock, Rule, Thresholds, WorldSettings};

/// A row of the only table, `users`. Each user has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The primary key.
    pub id: u32,
    /// The number of the row's name, which is unique in this database.
    pub name: u8,
    /// The time of the last write, by this database's clock.
    pub updated_at: Timestamp,
    /// True if plain SQL wrote the row and bypassed the claims. No claim is promised for such a
    /// row.
    pub is_stray: bool,
}

/// A change that a transaction makes to one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    /// The row's primary key.
    pub row: u32,
    /// The name before the change; `None` for a new row.
    pub before: Option<u8>,
    /// The name after the change; `None` for a deleted row.
    pub after: Option<u8>,
}

/// The changes that one transaction makes.
pub type Writes = SmallVec<[Write; 2]>;

/// The state of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionState {
    /// The transaction has begun and can still be rolled back.
    Open,
    /// The database has received the COMMIT.
    Committing,
    /// The database has received the COMMIT, and the worker has lost its connection.
    Orphaned,
}

/// A transaction that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transaction {
    /// The worker that began it.
    pub worker: u8,
    /// The time of its BEGIN, by this database's clock.
    pub begun_at: Timestamp,
    /// The time at which its rows were written.
    pub written_at: Timestamp,
    /// The rows and names that it changes. All of them are locked.
    pub writes: Writes,
    /// The lease row that it writes.
    pub lease: Option<LocalRow>,
    /// The state of the transaction.
    pub state: TransactionState,
}

/// The result of an attempt to write rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The rows are written and locked.
    Done,
    /// Another transaction holds one of the locks.
    Blocked,
    /// Another row has one of the names, or a row has changed since it was read.
    Conflict,
}

/// The reason for which the database refused a COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitRefusal {
    /// The lease is older than `commit_within_seconds` (R04).
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

/// A cell's database.
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

/// The row with this primary key.
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
    /// Creates an empty database.
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

    /// The database's clock when the world's clock shows `now`. At the start, the world's clock
    /// showed `start`.
    pub fn now(&self, start: u64, now: u64) -> Timestamp {
        let passed = i128::from(now.saturating_sub(start));
        let ahead = i128::from(self.clock.ahead_seconds) * 1_000_000;
        let fast = passed * i128::from(self.clock.fast_ppm) / 1_000_000;
        let shown = i128::from(start) + passed + ahead + fast;
        Timestamp::from_micros(u64::try_from(shown).unwrap_or_default())
    }

    /// The committed rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The committed lease rows.
    pub fn lease_rows(&self) -> &[LocalRow] {
        &self.lease_rows
    }

    /// The transactions that have not ended.
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }

    /// The committed row with this name.
    pub fn row_by_name(&self, name: u8) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Returns the next primary key. A key is never given out twice, like the values of an SQL
    /// sequence.
    pub fn allocate_key(&mut self) -> u32 {
        self.next_row += 1;
        self.next_row - 1
    }

    /// Returns the writes that a change needs, given the committed rows; `None` if it changes
    /// nothing or a row is missing.
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

    /// Begins a transaction for a worker.
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

    /// The worker's open transaction.
    pub fn open(&mut self, worker: u8) -> Option<&mut Transaction> {
        self.transactions.iter_mut().find(|tx| tx.worker == worker && tx.state == TransactionState::Open)
    }

    /// True if the database has received a COMMIT from this worker and has not answered it.
    pub fn is_committing(&self, worker: u8) -> bool {
        self.transactions.iter().any(|tx| tx.worker == worker && tx.state != TransactionState::Open)
    }

    /// True if the database has received a COMMIT from this worker, and the worker has lost its
    /// connection.
    pub fn is_orphaned(&self, worker: u8) -> bool {
        self.transactions.iter().any(|tx| tx.worker == worker && tx.state == TransactionState::Orphaned)
    }

    /// True if no other transaction holds a lock that these writes need.
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

    /// True if a transaction that has not ended has written the row.
    pub fn is_being_written(&self, id: u32) -> bool {
        self.transactions.iter().flat_map(|tx| &tx.writes).any(|write| write.row == id)
    }

    /// Writes rows in a worker's open transaction.
    pub fn write(&mut self, worker: u8, writes: &Writes, now: Timestamp) -> WriteResult {
        if !self.is_free(worker, writes) {
            return WriteResult::Blocked;
        }
        let is_own = |id: u32| writes.iter().any(|write| write.row == id);
        let is_stale = |write: &Write| row_by_id(&self.rows, write.row).map(|row| row.name) != write.before;
        let is_taken = |name: u8| self.row_by_name(name).is_some_and(|row| !is_own(row.id));
        let is_doubled = matches!(&writes[..], [one, two] if one.after.is_some() && one.after == two.after);
        if is_doubled || writes.iter().any(|write| is_stale(write) || write.after.is_some_and(is_taken)) {
            return WriteResult::Conflict;
        }
        if let Some(open) = self.open(worker) {
            open.writes.clone_from(writes);
            open.written_at = now;
        }
        WriteResult::Done
    }

    /// Hands the worker's COMMIT to the database.
    pub fn send_commit(&mut self, worker: u8) {
        if let Some(open) = self.open(worker) {
            open.state = TransactionState::Committing;
        }
    }

    /// Ends a worker's connection. Its open transaction is rolled back; a COMMIT that the database
    /// has received may still succeed.
    pub fn lose_connection(&mut self, worker: u8) {
        self.transactions.retain(|tx| tx.worker != worker || tx.state != TransactionState::Open);
        for tx in self.transactions.iter_mut().filter(|tx| tx.worker == worker) {
            tx.state = TransactionState::Orphaned;
        }
    }

    /// Performs the worker's first pending COMMIT, or refuses it as too late. Returns `None` if no
    /// COMMIT is pending.
    pub fn finish_commit(
        &mut self,
        worker: u8,
        now: Timestamp,
        by: &WorldSettings,
    ) -> Option<(Transaction, Result<(), CommitRefusal>)> {
        let tx = self.take_committing(worker, |state| state != TransactionState::Open)?;
        let result = check_commit_age(&tx, now, &by.thresholds, by.rules_off.is_on(Rule::LocalFence));
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

    /// Abandons a COMMIT whose worker has lost its connection, and returns the transaction.
    pub fn lose_commit(&mut self, worker: u8) -> Option<Transaction> {
        self.take_committing(worker, |state| state == TransactionState::Orphaned)
    }

    fn take_committing(&mut self, worker: u8, matches: impl Fn(TransactionState) -> bool) -> Option<Transaction> {
        let at = self.transactions.iter().position(|tx| tx.worker == worker && matches(tx.state))?;
        Some(self.transactions.remove(at))
    }

    /// Writes or deletes a row at once, like a statement outside any transaction.
    pub fn apply(&mut self, id: u32, row: Option<Row>, now: Timestamp, by: &WorldSettings) {
        put_row(&mut self.rows, id, row);
        if by.thresholds.replica_lag_seconds > 0 {
            self.replication_log.push_back(ReplicationEntry { at: now, id, row });
        }
    }

    /// Marks a row as covered by a claim after verification has claimed `name` for it. A row with another name by now
    /// stays unmarked.
    pub fn adopt(&mut self, id: u32, name: u8) {
        self.rows.iter_mut().filter(|row| row.id == id && row.name == name).for_each(|row| row.is_stray = false);
    }

    /// Writes a lease row in its own transaction.
    ///
    /// # Errors
    /// The lease is older than its safe age.
    pub fn write_lease_row(&mut self, row: LocalRow, now: Timestamp, by: &WorldSettings) -> Result<(), CommitRefusal> {
        if by.rules_off.is_on(Rule::LocalFence) && is_too_old(row, now, &by.thresholds) {
            return Err(CommitRefusal::LeaseTooOld);
        }
        self.lease_rows.push(row);
        Ok(())
    }

    /// Deletes the row of a lease.
    pub fn delete_lease_row(&mut self, lease: LeaseId) {
        self.lease_rows.retain(|row| row.lease != lease);
    }

    /// True if the replica has changes to apply.
    pub fn is_behind(&self) -> bool {
        !self.replication_log.is_empty()
    }

    /// Applies the next change to the replica.
    pub fn replicate(&mut self) {
        if let Some(entry) = self.replication_log.pop_front() {
            put_row(&mut self.replica, entry.id, entry.row);
        }
    }

    /// The rows that verification reads. A replica first applies every change that is older than
    /// the allowed lag.
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

/// Applies the database's own guards to a COMMIT.
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
