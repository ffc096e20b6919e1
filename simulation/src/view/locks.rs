//! Sessions, locks and clients in the form that a page draws.

use leasehold_core::lock::Lock;
use leasehold_core::session::{Session, SessionId};
use leasehold_core::table::{LockStatus, SessionStatus};
use serde::Serialize;

use crate::lock_client::{LockClient, TaskKind, WorkPhase, WorkResult};
use crate::lock_names::{cell_of, lock_key, session_number};
use crate::message_text::batch_text;
use crate::settings::LockSettings;
use crate::view::queues::{self, LaneView, RequestView};
use crate::view::variant_name;
use crate::world::{LockWorld, World};

/// The sessions and locks of a world, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocksView {
    /// The sessions of the service.
    pub sessions: Vec<SessionView>,
    /// The locks of the service, each with the resource that it guards.
    pub locks: Vec<LockView>,
    /// The lanes of the queue, each with the resource that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LaneView>,
    /// The requests of the queue, in the order of their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestView>,
    /// True if the service is paused.
    pub is_paused: bool,
    /// The number of proposals that the engine has not decided.
    pub undecided: usize,
    /// The number of seconds that the service's wall clock is ahead of the world's clock.
    pub ahead_seconds: i64,
}

/// A session of the service, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionView {
    /// The id of the session.
    pub session: SessionId,
    /// The number of the cell whose client opened the session.
    pub cell: u8,
    /// The number of the session among the sessions of its client, from 1.
    pub number: u32,
    /// The status of the session, as the engine's table names it.
    pub status: String,
    /// The number of ticks since the session's last renewal, `None` if the service does not watch
    /// the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ticks: Option<u64>,
    /// The number of silent ticks at which the session expires.
    pub expires_at_ticks: u64,
}

/// A lock of the service and the resource that it guards, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockView {
    /// The key of the lock.
    pub lock: String,
    /// The status of the lock, as the engine's table names it.
    pub status: String,
    /// The number of the cell whose client holds the lock, `None` if the lock is not held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<u8>,
    /// The fence of the grant, `None` if the lock is not held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The numbers of the cells whose clients wait, in the order of their turns.
    pub waiting: Vec<u8>,
    /// The newest fence that the resource has seen, `None` before the first write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest_fence: Option<u64>,
    /// The number of writes that the resource has accepted.
    pub writes: u32,
    /// The number of writes that the resource has refused.
    pub refused: u32,
}

/// The standing of a session by the clock of its client (K11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The last renewal is younger than the duration.
    Safe,
    /// The duration has passed, and the grace has not.
    Jeopardy,
    /// The session may have expired at the service.
    Lost,
}

/// The client of a cell, for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientView {
    /// The task of the client, `None` while it is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskKind>,
    /// The next action of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<WorkPhase>,
    /// The fence of the grant, `None` before the client learns of the grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The requests that the client works on in a few words, `None` if it works on none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// The number of the client's session, `None` if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u32>,
    /// The standing of the session, `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// True if the client is paused.
    pub is_paused: bool,
    /// True if the keepalive waits for the answer to a renewal.
    pub is_renewing: bool,
    /// The result of the last task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told: Option<WorkResult>,
}

/// Returns the sessions and locks of a world, `None` in a world of claims.
pub(super) fn locks(world: &World) -> Option<LocksView> {
    let locks = world.locks()?;
    let rows = world.service().lock_rows();
    Some(LocksView {
        sessions: rows.sessions.iter().map(|(id, row)| session(world, *id, row)).collect(),
        locks: (0..locks.terms.count).map(|number| lock(world, locks, number)).collect(),
        lanes: queues::lanes(world, locks),
        requests: queues::requests(world, locks),
        is_paused: world.service().is_paused,
        undecided: world.service().lock_host().map_or(0, |host| host.undecided()),
        ahead_seconds: locks.ahead_seconds,
    })
}

fn session(world: &World, id: SessionId, row: &Session) -> SessionView {
    let silences = world.service().lock_host().map_or_else(Vec::new, |host| host.silences());
    let tick_micros = world.locks().map_or(1, |locks| u64::from(locks.terms.tick_millis) * 1000);
    SessionView {
        session: id,
        cell: cell_of(id),
        number: session_number(id),
        status: variant_name(&SessionStatus::of(Some(row))),
        silent_ticks: silences.into_iter().find(|(watched, ..)| *watched == id).map(|(_, ticks, _)| ticks),
        // The first tick after a renewal does not count.
        expires_at_ticks: row.terms.silence_micros().div_ceil(tick_micros) + 1,
    }
}

fn lock(world: &World, locks: &LockWorld, number: u8) -> LockView {
    let path = locks.names.path(number);
    let row = path.and_then(|path| world.service().lock(path));
    let grant = row.and_then(Lock::grant);
    let resource = locks.resources.all().get(usize::from(number)).copied().unwrap_or_default();
    let rows = world.service().lock_rows();
    let turns = rows.turns.iter().filter(|(turn, _)| Some(&turn.lock) == path);
    LockView {
        lock: lock_key(number).to_owned(),
        status: variant_name(&LockStatus::of(row)),
        holder: grant.map(|grant| cell_of(grant.session)),
        fence: grant.map(|grant| grant.fence.0),
        waiting: turns.filter_map(|(_, turn)| rows.asks.get(&turn.ask)).map(|ask| cell_of(ask.session)).collect(),
        newest_fence: resource.newest.map(|newest| newest.fence.0),
        writes: resource.writes,
        refused: resource.refused,
    }
}

/// Returns the client of a cell with its own view of its session.
pub(super) fn client(client: &LockClient, clock: u64, terms: LockSettings) -> ClientView {
    let standing = client.session.map(|session| match session {
        session if session.is_lost(clock, terms) => Standing::Lost,
        session if session.is_in_jeopardy(clock, terms) => Standing::Jeopardy,
        _ => Standing::Safe,
    });
    ClientView {
        task: client.task.map(|task| task.kind),
        phase: client.task.map(|task| task.phase),
        fence: client.task.and_then(|task| task.fence).map(|fence| fence.0),
        batch: client.serving.as_ref().and_then(|serving| serving.batch.as_ref()).map(batch_text),
        session: client.session.map(|session| session_number(session.id)),
        standing,
        is_paused: client.is_paused,
        is_renewing: client.keepalive.is_waiting,
        told: client.last_result,
    }
}
