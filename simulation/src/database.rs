//! A cell's own database: rows, the rows of leases, open transactions with their locks, and a replica that lags.

use std::collections::VecDeque;

use leasehold_core::lease::LeaseId;
use leasehold_core::reconcile::LocalRow;
use leasehold_core::time::Timestamp;
use smallvec::SmallVec;

use crate::event::Change;
use crate::settings::{Clock, Rule, Settings, Thresholds};

/// A row of the one table that there is: users, who have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Its primary key.
    pub id: u32,
    /// Its name, unique in this database.
    pub name: u8,
    /// When it was written, by this database's clock.
    pub updated_at: Timestamp,
    /// Whether it was written past the claims, so that nothing is promised of it.
    pub is_stray: bool,
}

/// What a transaction does to one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    /// The row.
    pub row: u32,
    /// Its name before; none where it is new.
    pub before: Option<u8>,
    /// Its name after; none where it goes.
    pub after: Option<u8>,
}

/// What a transaction does.
pub type Writes = SmallVec<[Write; 2]>;

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionState {
    /// Begun.
    Open,
    /// Its COMMIT is in the database's hands.
    Committing,
    /// Likewise, and the worker that sent it is gone.
    Orphaned,
}

/// A transaction that is not at its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transaction {
    /// Whose it is.
    pub worker: u8,
    /// When it was begun, by this database's clock.
    pub begun_at: Timestamp,
    /// When its rows were written.
    pub written_at: Timestamp,
    /// What it does; its rows and names are locked.
    pub writes: Writes,
    /// The lease's row that it writes.
    pub lease: Option<LocalRow>,
    /// Where it stands.
    pub state: TransactionState,
}

/// What came of an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is written, and locked.
    Done,
    /// Another transaction holds a lock.
    Blocked,
    /// A name is another row's, or a row is not what it was.
    Conflict,
}

/// Why a COMMIT did not take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLate {
    /// The lease is older than its safe age (R04).
    Lease,
    /// The transaction is older than any may be.
    Transaction,
}

/// A change that a replica has yet to take in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Logged {
    at: Timestamp,
    id: u32,
    row: Option<Row>,
}

/// A table of rows, in the order of their keys.
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
    log: VecDeque<Logged>,
}

/// The row with a key.
pub fn find(rows: &[Row], id: u32) -> Option<&Row> {
    rows.binary_search_by_key(&id, |row| row.id).ok().and_then(|at| rows.get(at))
}

fn put(rows: &mut Table, id: u32, row: Option<Row>) {
    match (rows.binary_search_by_key(&id, |row| row.id), row) {
        (Ok(at), Some(row)) => rows.iter_mut().skip(at).take(1).for_each(|present| *present = row),
        (Ok(at), None) => _ = rows.remove(at),
        (Err(at), Some(row)) => rows.insert(at, row),
        (Err(_), None) => {}
    }
}

impl Database {
    /// An empty database.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            rows: Table::new(),
            next_row: 1,
            lease_rows: Vec::new(),
            transactions: Vec::new(),
            replica: Table::new(),
            log: VecDeque::new(),
        }
    }

    /// Its clock, when the world's says `now` and said `start` at the start.
    pub fn now(&self, start: u64, now: u64) -> Timestamp {
        let passed = i128::from(now.saturating_sub(start));
        let ahead = i128::from(self.clock.ahead_seconds) * 1_000_000;
        let fast = passed * i128::from(self.clock.fast_ppm) / 1_000_000;
        let told = i128::from(start) + passed + ahead + fast;
        Timestamp::from_micros(u64::try_from(told).unwrap_or_default())
    }

    /// The committed rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The committed rows of leases.
    pub fn lease_rows(&self) -> &[LocalRow] {
        &self.lease_rows
    }

    /// The transactions that are not at their end.
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }

    /// The committed row that has a name.
    pub fn row_named(&self, name: u8) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The next primary key: a sequence never gives one twice.
    pub fn draw_key(&mut self) -> u32 {
        self.next_row += 1;
        self.next_row - 1
    }

    /// What a change comes to, as the committed rows stand; none where there is nothing to do.
    pub fn plan(&self, change: Change, keys: [u32; 2]) -> Option<Writes> {
        let name = |id: u32| find(&self.rows, id).map(|row| row.name);
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

    /// Begins a worker's transaction.
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

    /// The open transaction of a worker.
    pub fn open(&mut self, worker: u8) -> Option<&mut Transaction> {
        self.transactions.iter_mut().find(|tx| tx.worker == worker && tx.state == TransactionState::Open)
    }

    /// Whether a worker's COMMIT is in the database's hands.
    pub fn is_committing(&self, worker: u8) -> bool {
        self.transactions.iter().any(|tx| tx.worker == worker && tx.state != TransactionState::Open)
    }

    /// Whether a COMMIT whose worker is gone is in the database's hands.
    pub fn is_orphaned(&self, worker: u8) -> bool {
        self.transactions.iter().any(|tx| tx.worker == worker && tx.state == TransactionState::Orphaned)
    }

    /// Whether nobody else holds the locks of these writes.
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

    /// Whether some transaction has written a row, and is not at its end.
    pub fn is_being_written(&self, id: u32) -> bool {
        self.transactions.iter().flat_map(|tx| &tx.writes).any(|write| write.row == id)
    }

    /// Writes rows in a worker's open transaction.
    pub fn write(&mut self, worker: u8, writes: &Writes, now: Timestamp) -> Written {
        if !self.is_free(worker, writes) {
            return Written::Blocked;
        }
        let is_own = |id: u32| writes.iter().any(|write| write.row == id);
        let is_stale = |write: &Write| find(&self.rows, write.row).map(|row| row.name) != write.before;
        let is_taken = |name: u8| self.row_named(name).is_some_and(|row| !is_own(row.id));
        let is_doubled = matches!(&writes[..], [one, two] if one.after.is_some() && one.after == two.after);
        if is_doubled || writes.iter().any(|write| is_stale(write) || write.after.is_some_and(is_taken)) {
            return Written::Conflict;
        }
        if let Some(open) = self.open(worker) {
            open.writes.clone_from(writes);
            open.written_at = now;
        }
        Written::Done
    }

    /// Takes a worker's COMMIT in hand.
    pub fn send_commit(&mut self, worker: u8) {
        if let Some(open) = self.open(worker) {
            open.state = TransactionState::Committing;
        }
    }

    /// Rolls back what a worker has open, as it does where the connection is lost. A COMMIT that was sent may yet be
    /// done.
    pub fn lose_connection(&mut self, worker: u8) {
        self.transactions.retain(|tx| tx.worker != worker || tx.state != TransactionState::Open);
        for tx in self.transactions.iter_mut().filter(|tx| tx.worker == worker) {
            tx.state = TransactionState::Orphaned;
        }
    }

    /// Carries out the first COMMIT that is in hand for a worker, or refuses it as too late. None where there is none.
    pub fn finish_commit(
        &mut self,
        worker: u8,
        now: Timestamp,
        by: &Settings,
    ) -> Option<(Transaction, Result<(), TooLate>)> {
        let tx = self.take_committing(worker, |state| state != TransactionState::Open)?;
        let result = in_time(&tx, now, &by.thresholds, by.rules_off.keep(Rule::LocalFence));
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

    /// Gives up on a COMMIT whose worker is gone.
    pub fn lose_commit(&mut self, worker: u8) -> Option<Transaction> {
        self.take_committing(worker, |state| state == TransactionState::Orphaned)
    }

    fn take_committing(&mut self, worker: u8, is_it: impl Fn(TransactionState) -> bool) -> Option<Transaction> {
        let at = self.transactions.iter().position(|tx| tx.worker == worker && is_it(tx.state))?;
        Some(self.transactions.remove(at))
    }

    /// Writes a row at once, as a statement outside any transaction does.
    pub fn apply(&mut self, id: u32, row: Option<Row>, now: Timestamp, by: &Settings) {
        put(&mut self.rows, id, row);
        if by.thresholds.replica_lag_seconds > 0 {
            self.log.push_back(Logged { at: now, id, row });
        }
    }

    /// Rows that are no longer stray: verification has claimed for them what they call for.
    pub fn adopt(&mut self, id: u32, name: u8) {
        self.rows.iter_mut().filter(|row| row.id == id && row.name == name).for_each(|row| row.is_stray = false);
    }

    /// Writes the row of a lease in a transaction of its own, or refuses it as too late.
    ///
    /// # Errors
    /// The lease is older than its safe age.
    pub fn write_lease_row(&mut self, row: LocalRow, now: Timestamp, by: &Settings) -> Result<(), TooLate> {
        if by.rules_off.keep(Rule::LocalFence) && is_too_old(row, now, &by.thresholds) {
            return Err(TooLate::Lease);
        }
        self.lease_rows.push(row);
        Ok(())
    }

    /// Deletes the row of a lease.
    pub fn delete_lease_row(&mut self, lease: LeaseId) {
        self.lease_rows.retain(|row| row.lease != lease);
    }

    /// Whether the replica has something to take in.
    pub fn is_behind(&self) -> bool {
        !self.log.is_empty()
    }

    /// Lets the replica take in the next change.
    pub fn replicate(&mut self) {
        if let Some(logged) = self.log.pop_front() {
            put(&mut self.replica, logged.id, logged.row);
        }
    }

    /// The rows that verification reads: the replica's, not older than the lag that is allowed.
    pub fn read(&mut self, now: Timestamp, by: &Settings) -> &[Row] {
        let lag = by.thresholds.replica_lag_seconds;
        if lag == 0 {
            return &self.rows;
        }
        let oldest = now.minus_micros(micros(lag));
        while self.log.front().is_some_and(|logged| logged.at < oldest) {
            self.replicate();
        }
        &self.replica
    }
}

/// Seconds as microseconds.
pub fn micros(seconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000
}

fn is_older(since: Timestamp, now: Timestamp, seconds: u32) -> bool {
    now.micros_since(since) > micros(seconds)
}

fn is_too_old(lease: LocalRow, now: Timestamp, by: &Thresholds) -> bool {
    is_older(lease.created_at, now, by.commit_within_seconds)
}

/// What the database's own guards say of a COMMIT.
fn in_time(tx: &Transaction, now: Timestamp, by: &Thresholds, is_fenced: bool) -> Result<(), TooLate> {
    if is_fenced && tx.lease.is_some_and(|lease| is_too_old(lease, now, by)) {
        return Err(TooLate::Lease);
    }
    if is_older(tx.begun_at, now, by.transaction_within_seconds) {
        return Err(TooLate::Transaction);
    }
    Ok(())
}
