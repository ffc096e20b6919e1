//! The reads of sessions and locks: the rows of a group of commands, and lists.

use std::ops::Bound;
use std::sync::LazyLock;

use leasehold_core::circle::{CircleRead, MAX_SEARCHED_ASKS};
use leasehold_core::lock::{Ask, AskId, Lock, LockPath, Turn, TurnKey};
use leasehold_core::locking::reads::{lock_of, queue_of, session_of};
use leasehold_core::rows::{Keys, LockOrder, OrderedRead, SessionOrder, State, Workspace};
use leasehold_core::session::{Session, SessionId};
use leasehold_core::time::Timestamp;
use rustc_hash::FxHashMap;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::columns::{Micros, Parameters};
use super::failure::failed;
use super::lock_columns::{self as columns, ASK, Clipped, LOCK, SESSION, TURN, clip};
use crate::store::error::StoreError;

type Result<T> = std::result::Result<T, StoreError>;

/// The number of turns that are read with each lock. A group releases a lock once, which needs the
/// first turn, and the engine reads one turn more than it may serve.
const TURNS_OF_A_RELEASE: usize = 2;

/// A text that sorts after every namespace and every key: more bytes than either may have, all of
/// the largest character.
pub(super) static BEYOND_TEXT: LazyLock<String> =
    LazyLock::new(|| "\u{10ffff}".repeat(leasehold_core::lock::MAX_KEY_BYTES));

static READ_SESSIONS: LazyLock<String> = LazyLock::new(|| format!("SELECT {SESSION} FROM read_sessions($1) s"));
static READ_LOCKS: LazyLock<String> = LazyLock::new(|| format!("SELECT {LOCK} FROM read_locks($1, $2) l"));
static READ_TURNS: LazyLock<String> = LazyLock::new(|| format!("SELECT {TURN} FROM read_turns($1, $2, $3) t"));
static READ_TURN_ROWS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {TURN} FROM unnest($1, $2, $3) AS n (n, k, number)
         JOIN lock_turns t ON t.namespace = n.n AND t.key = n.k AND t.number = n.number"
    )
});
static READ_ASKS: LazyLock<String> = LazyLock::new(|| format!("SELECT {ASK} FROM read_asks($1, $2, $3, $4, $5) a"));

/// The rows of sessions and locks that one load has read.
#[derive(Default)]
pub(super) struct LoadedLocks {
    pub(super) sessions: FxHashMap<SessionId, Session>,
    pub(super) locks: FxHashMap<LockPath, Lock>,
    pub(super) asks: FxHashMap<AskId, Ask>,
    pub(super) turns: Vec<(TurnKey, Turn)>,
    // The queues whose first turns were read, each with the number of turns that was asked for.
    pub(super) queues: Vec<(LockPath, usize)>,
}

/// The parameters of the statements that load sessions and locks.
pub(super) struct LockKeys {
    sessions: Vec<Uuid>,
    locks: (Vec<String>, Vec<String>),
    asks: Vec<Uuid>,
    asks_of_sessions: Vec<Uuid>,
    turns: (Vec<String>, Vec<String>, Vec<i64>),
    queues: Vec<(LockPath, usize)>,
    queue_arrays: (Vec<String>, Vec<String>, Vec<i32>),
}

impl LockKeys {
    /// Returns the parameters for these keys.
    ///
    /// # Errors
    /// An ordered read is not one of those that the engine's commands ask for.
    pub(super) fn of(keys: &Keys) -> Result<Self> {
        let unexpected = || StoreError::Failed("no command makes such an ordered read".into());
        let mut limits: FxHashMap<LockPath, usize> =
            keys.locks.iter().map(|path| (path.clone(), TURNS_OF_A_RELEASE)).collect();
        for read in &keys.turns_of_lock {
            let limit = limits.entry(lock_of(read).ok_or_else(unexpected)?.clone()).or_default();
            *limit = read.limit.max(*limit);
        }
        let queues: Vec<_> = limits.into_iter().collect();
        let limit = |limit: usize| i32::try_from(limit).unwrap_or(i32::MAX);
        let asks_of_sessions = keys.asks_of_session.iter().map(|read| session_of(read).map(|id| id.0));
        Ok(Self {
            sessions: keys.sessions.iter().map(|id| id.0).collect(),
            locks: keys.locks.iter().map(texts).unzip(),
            asks: keys.asks.iter().map(|id| id.0).collect(),
            asks_of_sessions: asks_of_sessions.collect::<Option<_>>().ok_or_else(unexpected)?,
            turns: keys.turns.iter().map(|turn| with_texts(&turn.lock, turn.number.cast_signed())).collect(),
            queue_arrays: queues.iter().map(|(path, count)| with_texts(path, limit(*count))).collect(),
            queues,
        })
    }
}

fn texts(path: &LockPath) -> (String, String) {
    (path.namespace().into(), path.stored_key().into_owned())
}

fn with_texts<T>(path: &LockPath, number: T) -> (String, String, T) {
    let (namespace, key) = texts(path);
    (namespace, key, number)
}

/// Reads the rows of sessions and locks in the transaction of a group. All statements are sent
/// before the first answer is awaited.
///
/// # Errors
/// A row could not be read.
pub(super) async fn load(client: &Client, keys: LockKeys) -> Result<LoadedLocks> {
    let LockKeys { sessions, locks, asks, asks_of_sessions, turns, queues, queue_arrays } = keys;
    let paths = || vec![(&queue_arrays.0 as _, Type::TEXT_ARRAY), (&queue_arrays.1 as _, Type::TEXT_ARRAY)];
    let limits = || vec![(&queue_arrays.2 as _, Type::INT4_ARRAY)];
    let turn_rows =
        vec![(&turns.0 as _, Type::TEXT_ARRAY), (&turns.1 as _, Type::TEXT_ARRAY), (&turns.2 as _, Type::INT8_ARRAY)];
    let asked = vec![(&asks as _, Type::UUID_ARRAY), (&asks_of_sessions as _, Type::UUID_ARRAY)];
    let has_asks = !(asks.is_empty() && asks_of_sessions.is_empty() && queues.is_empty());
    let lock_paths = vec![(&locks.0 as _, Type::TEXT_ARRAY), (&locks.1 as _, Type::TEXT_ARRAY)];
    let (read_sessions, read_locks, read_turns, read_turn_rows, read_asks) = futures_util::join!(
        rows(client, &READ_SESSIONS, vec![(&sessions, Type::UUID_ARRAY)], !sessions.is_empty()),
        rows(client, &READ_LOCKS, lock_paths, !locks.0.is_empty()),
        rows(client, &READ_TURNS, [paths(), limits()].concat(), !queues.is_empty()),
        rows(client, &READ_TURN_ROWS, turn_rows, !turns.0.is_empty()),
        rows(client, &READ_ASKS, [asked, paths(), limits()].concat(), has_asks),
    );
    let turns = read_turns?.iter().chain(&read_turn_rows?).map(columns::turn).collect::<Result<_>>()?;
    Ok(LoadedLocks {
        sessions: read_sessions?.iter().map(columns::session).collect::<Result<_>>()?,
        locks: read_locks?.iter().map(columns::lock).collect::<Result<_>>()?,
        asks: read_asks?.iter().map(columns::ask).collect::<Result<_>>()?,
        turns,
        queues,
    })
}

pub(super) async fn rows(client: &Client, sql: &str, parameters: Parameters<'_>, is_needed: bool) -> Result<Vec<Row>> {
    if !is_needed {
        return Ok(Vec::new());
    }
    client.query_typed(sql, &parameters).await.map_err(failed)
}

impl LoadedLocks {
    /// Puts the rows into the workspace, and the fact that a row is absent.
    pub(super) fn put_into(mut self, workspace: &mut Workspace, keys: &Keys) {
        for read in &keys.asks_of_session {
            let session = session_of(read);
            let mut asks: Vec<_> = self.asks.iter().filter(|(_, ask)| Some(ask.session) == session).collect();
            asks.sort_unstable_by_key(|(id, _)| **id);
            let asks = asks.into_iter().take(read.limit).map(|(id, ask)| (*id, ask.clone())).collect();
            workspace.load_first(read, asks);
        }
        for (path, limit) in &self.queues {
            let turns = self.turns.iter().filter(|(key, _)| key.lock == *path).cloned();
            let mut turns: Vec<_> = turns.collect();
            turns.sort_unstable_by_key(|(key, _)| key.number);
            turns.dedup_by_key(|(key, _)| key.number);
            turns.truncate(*limit);
            workspace.load_first(&queue_of(path, *limit), turns);
        }
        self.turns.iter().for_each(|(key, turn)| workspace.load(key.clone(), Some(*turn)));
        keys.turns.iter().for_each(|key| workspace.load::<Turn>(key.clone(), None));
        keys.sessions.iter().for_each(|id| workspace.load(*id, self.sessions.remove(id)));
        keys.locks.iter().for_each(|path| workspace.load(path.clone(), self.locks.remove(path)));
        keys.asks.iter().for_each(|id| workspace.load(*id, self.asks.remove(id)));
        // The remaining asks hold the locks or wait for them, and the committer would ask for them
        // next.
        self.asks.into_iter().for_each(|(id, ask)| workspace.load(id, Some(ask)));
    }
}

/// Adds the rows of sessions and locks to the state.
///
/// # Errors
/// A row could not be read.
pub(super) async fn add_state(client: &Client, state: &mut State) -> Result<()> {
    let all = async |columns: &str, table: &str| {
        client.query_typed(&format!("SELECT {columns} FROM {table}"), &[]).await.map_err(failed)
    };
    let sessions = all(SESSION, "lock_sessions s").await?;
    state.sessions = sessions.iter().map(columns::session).collect::<Result<_>>()?;
    state.locks = all(LOCK, "locks l").await?.iter().map(columns::lock).collect::<Result<_>>()?;
    state.asks = all(ASK, "lock_asks a").await?.iter().map(columns::ask).collect::<Result<_>>()?;
    state.turns = all(TURN, "lock_turns t").await?.iter().map(columns::turn).collect::<Result<_>>()?;
    Ok(())
}

/// Reads a lock; `None` if it has no row.
pub(super) async fn lock(client: &Client, path: &LockPath) -> Result<Option<Lock>> {
    let sql = format!("SELECT {LOCK} FROM locks l WHERE l.namespace = $1 AND l.key = $2");
    let (namespace, key) = (path.namespace(), &*path.stored_key());
    let row = client.query_typed_opt(&sql, &[(&namespace, Type::TEXT), (&key, Type::TEXT)]).await.map_err(failed)?;
    row.map(|row| columns::lock(&row).map(|(_, lock)| lock)).transpose()
}

/// Reads an ask; `None` if it has no row.
pub(super) async fn ask(client: &Client, id: AskId) -> Result<Option<Ask>> {
    let sql = format!("SELECT {ASK} FROM lock_asks a WHERE a.uuid = $1");
    let row = client.query_typed_opt(&sql, &[(&id.0, Type::UUID)]).await.map_err(failed)?;
    row.map(|row| columns::ask(&row).map(|(_, ask)| ask)).transpose()
}

/// Reads asks for a search for circles (K15).
pub(super) async fn related_asks(client: &Client, read: &CircleRead) -> Result<Vec<(AskId, Ask)>> {
    let found = match read {
        CircleRead::OfSession(session) => {
            let sql = format!("SELECT {ASK} FROM lock_asks a WHERE a.session_uuid = $1");
            rows(client, &sql, vec![(&session.0, Type::UUID)], true).await?
        }
        CircleRead::OfLock(lock) => {
            // The slots of a lock have its key, U+001F and a number.
            let sql = format!(
                "SELECT {ASK} FROM locks l JOIN lock_asks a ON a.uuid = l.ask_uuid
                 WHERE l.namespace = $1 AND (l.key = $2 OR l.key > $2 || chr(31) AND l.key < $2 || chr(32))
                 UNION ALL
                 (SELECT {ASK} FROM lock_turns t JOIN lock_asks a ON a.uuid = t.ask_uuid
                  WHERE t.namespace = $1 AND t.key = $2 ORDER BY t.number LIMIT $3)"
            );
            let ((namespace, key), limit) = (texts(lock), sql_limit(MAX_SEARCHED_ASKS));
            let parameters: Parameters<'_> = vec![(&namespace, Type::TEXT), (&key, Type::TEXT), (&limit, Type::INT8)];
            rows(client, &sql, parameters, true).await?
        }
    };
    found.iter().map(columns::ask).collect()
}

/// Returns the operator of a lower bound and its place, the place `first` if there is no bound.
pub(super) fn lower<T>(bound: Bound<T>, first: T) -> (&'static str, T) {
    match bound {
        Bound::Included(at) => (">=", at),
        Bound::Excluded(at) => (">", at),
        Bound::Unbounded => (">=", first),
    }
}

/// Returns the operator of an upper bound and its place, the place `last` if there is no bound.
pub(super) fn upper<T>(bound: Bound<T>, last: T) -> (&'static str, T) {
    match bound {
        Bound::Included(at) => ("<=", at),
        Bound::Excluded(at) => ("<", at),
        Bound::Unbounded => ("<=", last),
    }
}

/// Reads the first sessions of a range: live sessions by id, then ended sessions by the time of
/// their end.
pub(super) async fn sessions(client: &Client, read: &OrderedRead<Session>) -> Result<Vec<(SessionId, Session)>> {
    let mut found = Vec::new();
    let live = |position: &SessionOrder| match position {
        SessionOrder::Live(id) => (0, id.0),
        SessionOrder::Ended(..) => (1, Uuid::nil()),
    };
    if let Some(range) = clip::<Session, _>((&read.from, &read.to), 0, live) {
        found = live_sessions(client, range, read.limit).await?;
    }
    let ended = |position: &SessionOrder| match position {
        SessionOrder::Live(_) => (0, (Timestamp::MIN, Uuid::nil())),
        SessionOrder::Ended(at, id) => (1, (*at, id.0)),
    };
    if let Some(range) = clip::<Session, _>((&read.from, &read.to), 1, ended) {
        found.extend(ended_sessions(client, range, read.limit.saturating_sub(found.len())).await?);
    }
    Ok(found)
}

pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

async fn live_sessions(client: &Client, range: Clipped<Uuid>, limit: usize) -> Result<Vec<(SessionId, Session)>> {
    let ((after, from), (before, to)) = (lower(range.0, Uuid::nil()), upper(range.1, Uuid::max()));
    let sql = format!(
        "SELECT {SESSION} FROM lock_sessions s
         WHERE s.ended IS NULL AND s.uuid {after} $1 AND s.uuid {before} $2 ORDER BY s.uuid LIMIT $3"
    );
    let limit = sql_limit(limit);
    let parameters: Parameters<'_> = vec![(&from, Type::UUID), (&to, Type::UUID), (&limit, Type::INT8)];
    rows(client, &sql, parameters, true).await?.iter().map(columns::session).collect()
}

async fn ended_sessions(
    client: &Client,
    range: Clipped<(Timestamp, Uuid)>,
    limit: usize,
) -> Result<Vec<(SessionId, Session)>> {
    let (after, from) = lower(range.0, (Timestamp::MIN, Uuid::nil()));
    let (before, to) = upper(range.1, (Timestamp::MAX, Uuid::max()));
    let sql = format!(
        "SELECT {SESSION} FROM lock_sessions s
         WHERE s.ended IS NOT NULL AND (s.updated_at, s.uuid) {after} ($1, $2)
             AND (s.updated_at, s.uuid) {before} ($3, $4) ORDER BY s.updated_at, s.uuid LIMIT $5"
    );
    let (from_time, to_time, limit) = (Micros(from.0), Micros(to.0), sql_limit(limit));
    let parameters: Parameters<'_> = vec![
        (&from_time, Type::TIMESTAMPTZ),
        (&from.1, Type::UUID),
        (&to_time, Type::TIMESTAMPTZ),
        (&to.1, Type::UUID),
        (&limit, Type::INT8),
    ];
    rows(client, &sql, parameters, true).await?.iter().map(columns::session).collect()
}

/// The time of a lock's last change, 0 in a list that is not in the order of time, and its path.
type LockPlace = (Timestamp, String, String);

/// Returns the number of the list of a lock's position, and the place in that list.
fn lock_place(position: &LockOrder) -> (u8, LockPlace) {
    let (list, at, path) = match position {
        LockOrder::Held(path) => (0, Timestamp::MIN, path),
        LockOrder::Withheld(path) => (1, Timestamp::MIN, path),
        LockOrder::Free(at, path) => (2, *at, path),
        LockOrder::Orphaned(path) => (3, Timestamp::MIN, path),
        LockOrder::SetAside(path) => (4, Timestamp::MIN, path),
    };
    let (namespace, key) = texts(path);
    (list, (at, namespace, key))
}

/// The lists of locks in the order of their numbers: the condition of a list in the order of paths,
/// `None` for the free locks.
const LISTS: [Option<&str>; 5] = [
    Some("l.state IN (2, 5, 7)"),
    Some("l.silence_micros IS NOT NULL"),
    None,
    Some("l.obituary_fence IS NOT NULL AND l.state = 4 AND l.obituary_attempts < l.most_attempts"),
    Some("l.obituary_fence IS NOT NULL AND l.state = 4 AND l.obituary_attempts >= l.most_attempts"),
];

/// Reads the first locks of a range: those of each list by path, and the free locks by the time of
/// their last change.
pub(super) async fn locks(client: &Client, read: &OrderedRead<Lock>) -> Result<Vec<(LockPath, Lock)>> {
    let mut found = Vec::new();
    for (list, condition) in (0..).zip(LISTS) {
        let limit = read.limit.saturating_sub(found.len());
        let Some(range) = clip::<Lock, _>((&read.from, &read.to), list, lock_place).filter(|_| limit > 0) else {
            continue;
        };
        found.extend(match condition {
            Some(condition) => locks_by_path(client, condition, range, limit).await?,
            None => free_locks(client, range, limit).await?,
        });
    }
    Ok(found)
}

async fn locks_by_path(
    client: &Client,
    filter: &str,
    range: Clipped<LockPlace>,
    limit: usize,
) -> Result<Vec<(LockPath, Lock)>> {
    let (after, from) = lower(range.0, (Timestamp::MIN, String::new(), String::new()));
    let (before, to) = upper(range.1, (Timestamp::MAX, BEYOND_TEXT.clone(), String::new()));
    let sql = format!(
        "SELECT {LOCK} FROM locks l WHERE {filter} AND (l.namespace, l.key) {after} ($1, $2)
             AND (l.namespace, l.key) {before} ($3, $4) ORDER BY l.namespace, l.key LIMIT $5"
    );
    let limit = sql_limit(limit);
    let parameters: Parameters<'_> = vec![
        (&from.1, Type::TEXT),
        (&from.2, Type::TEXT),
        (&to.1, Type::TEXT),
        (&to.2, Type::TEXT),
        (&limit, Type::INT8),
    ];
    rows(client, &sql, parameters, true).await?.iter().map(columns::lock).collect()
}

/// Returns the hour of a time, counted from 1970, as in `locks.updated_hour`.
fn hour(at: Timestamp) -> i32 {
    i32::try_from(at.as_micros() / 3_600_000_000).unwrap_or(i32::MAX)
}

/// Reads the first free locks of a range. The index finds them hour by hour, and the statement sorts
/// each hour.
async fn free_locks(client: &Client, range: Clipped<LockPlace>, limit: usize) -> Result<Vec<(LockPath, Lock)>> {
    let (after, from) = lower(range.0, (Timestamp::MIN, String::new(), String::new()));
    let (before, to) = upper(range.1, (Timestamp::MAX, BEYOND_TEXT.clone(), String::new()));
    let sql = format!(
        "SELECT {LOCK} FROM locks l
         WHERE l.state = 1 AND l.updated_hour BETWEEN $1 AND $2
             AND (l.updated_at, l.namespace, l.key) {after} ($3, $4, $5)
             AND (l.updated_at, l.namespace, l.key) {before} ($6, $7, $8)
         ORDER BY l.updated_hour, l.updated_at, l.namespace, l.key LIMIT $9"
    );
    let (from_hour, to_hour, limit) = (hour(from.0), hour(to.0), sql_limit(limit));
    let (from_time, to_time) = (Micros(from.0), Micros(to.0));
    let parameters: Parameters<'_> = vec![
        (&from_hour, Type::INT4),
        (&to_hour, Type::INT4),
        (&from_time, Type::TIMESTAMPTZ),
        (&from.1, Type::TEXT),
        (&from.2, Type::TEXT),
        (&to_time, Type::TIMESTAMPTZ),
        (&to.1, Type::TEXT),
        (&to.2, Type::TEXT),
        (&limit, Type::INT8),
    ];
    rows(client, &sql, parameters, true).await?.iter().map(columns::lock).collect()
}
