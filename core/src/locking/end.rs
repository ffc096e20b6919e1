//! Ends a session: closes it, expires it for its silence, or evicts it.

use super::hand_over::{Draft, HeldAt};
use super::reads::asks_of;
use super::refused;
use crate::lease::Fence;
use crate::lock::{Ask, AskId, AskState, GrantEnd, Lock, LockPath, LockValue, Withholding};
use crate::order::sorted_by;
use crate::rejection::{Reason, Rejection};
use crate::session::{Principal, Session, SessionEnd, SessionId, SessionState};
use crate::time::Timestamp;
use crate::transaction::{BrokenState, Transaction};
use crate::update::Answer;

/// The command to end a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The session to end.
    pub session: SessionId,
    /// The cause of the end.
    pub cause: Cause,
}

/// The cause of the end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The service that opened the session closes it.
    Close(Principal),
    /// A host observed the session's silence.
    Silence(Silence),
    /// An operator evicts the session.
    Evict,
}

/// The silence of a session, as a host observed it (K06).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The number of written renewals when the host began to observe the silence.
    pub renewals_seen: u64,
    /// The microseconds for which the host was awake and saw no renewal.
    pub quiet_micros: u64,
}

impl Cause {
    fn end(&self) -> SessionEnd {
        match self {
            Self::Close(_) => SessionEnd::Closed,
            Self::Silence(_) => SessionEnd::Expired,
            Self::Evict => SessionEnd::Evicted,
        }
    }
}

/// The asks of a session for one lock.
#[derive(Default)]
struct AsksOfLock {
    /// The lock, or slots of it, that the session holds.
    held: Vec<LockPath>,
    waiting: Vec<(AskId, u64)>,
}

/// Ends a live session with all its asks, in one write. Locks that the session held go to the next
/// ask, or are orphaned where they are reaped (K17). If the session is evicted, they are withheld first
/// (K20). Returns false if the session had ended in the same way before.
///
/// # Errors
/// The store failed. The inner error is a refusal: the session is unknown, belongs to another
/// service, ended in another way, has renewed since the host observed it, or was not silent for
/// long enough (K06).
pub fn end<T: Transaction>(tx: &mut T, command: &End, now: Timestamp) -> Answer<bool, T::Error> {
    let Some(session) = tx.row::<Session>(&command.session)? else {
        return Ok(Err(refused(Reason::SessionNotFound)));
    };
    match check(session, &command.cause) {
        Ok(true) => {}
        decided => return Ok(decided),
    }
    let end = command.cause.end();
    let mut draft = Draft::new(tx, now)?;
    let asks = asks_by_lock(tx, command.session, session)?;
    for (path, asks) in &asks {
        let broken = BrokenState::SessionAsksDiffer(command.session);
        let mut lock = tx.row::<Lock>(path)?.ok_or(broken)?.clone();
        for at in &asks.held {
            let slot = if at.slot() == 0 { None } else { Some(tx.row::<Lock>(at)?.ok_or(broken)?.clone()) };
            let mut held = HeldAt { path: at.clone(), lock, slot };
            end_hold(&mut draft, &mut held, command.session, session, end)?;
            lock = held.lock;
        }
        draft.finish(tx, path, lock, &asks.waiting)?;
    }
    let session = Session { asks: 0, updated_at: now, state: SessionState::Ended(end), ..session.clone() };
    draft.write(tx, command.session, session)?;
    Ok(Ok(true))
}

/// Returns true if the session is to be ended, false if it has ended by the same kind of cause
/// before.
fn check(session: &Session, cause: &Cause) -> Result<bool, Rejection> {
    if let Cause::Close(principal) = cause
        && session.principal != *principal
    {
        return Err(refused(Reason::SessionNotOwned));
    }
    match session.state {
        SessionState::Ended(end) if end == cause.end() => return Ok(false),
        SessionState::Ended(_) => return Err(refused(Reason::SessionEnded)),
        SessionState::Live => {}
    }
    match cause {
        Cause::Silence(silence)
            if silence.renewals_seen != session.renewals || silence.quiet_micros < session.terms.silence_micros() =>
        {
            Err(refused(Reason::SessionAlive))
        }
        _ => Ok(true),
    }
}

/// Returns the asks of a session by lock, in the order of the paths. A session may have several asks for
/// one lock: one that holds the lock, and others that wait.
fn asks_by_lock<T: Transaction>(
    tx: &T,
    id: SessionId,
    session: &Session,
) -> Result<Vec<(LockPath, AsksOfLock)>, T::Error> {
    let ids = tx.first::<Ask>(&asks_of(id))?;
    if ids.len() != session.asks as usize {
        return Err(BrokenState::SessionAsksDiffer(id).into());
    }
    let mut asks = Vec::with_capacity(ids.len());
    for ask_id in ids {
        let ask = tx.row::<Ask>(&ask_id)?.ok_or(BrokenState::SessionAsksDiffer(id))?;
        asks.push((ask.lock.base(), ask_id, ask));
    }
    let mut locks: Vec<(LockPath, AsksOfLock)> = Vec::new();
    for (path, ask_id, ask) in sorted_by(asks, |one, other| one.0.cmp(&other.0)) {
        if locks.last().is_none_or(|(last, _)| *last != path) {
            locks.push((path, AsksOfLock::default()));
        }
        let Some((_, asks)) = locks.last_mut() else { continue };
        match ask.state {
            AskState::Holding(_) => asks.held.push(ask.lock.clone()),
            AskState::Waiting(turn) => asks.waiting.push((ask_id, turn)),
        }
    }
    Ok(locks)
}

fn end_hold(
    draft: &mut Draft,
    held: &mut HeldAt,
    id: SessionId,
    session: &Session,
    end: SessionEnd,
) -> Result<(), BrokenState> {
    let grant = *held.row().grant().filter(|grant| grant.session == id).ok_or(BrokenState::SessionAsksDiffer(id))?;
    let (end, withheld) = match end {
        SessionEnd::Closed => (GrantEnd::Closed, None),
        SessionEnd::Expired => (GrantEnd::Expired, None),
        SessionEnd::Evicted => (GrantEnd::Evicted, Some(withholding(grant.fence, session))),
    };
    draft.end(held, (grant, end, LockValue::default()), withheld);
    Ok(())
}

/// Returns the withholding of a lock that was taken from a session while the session may still work
/// under it.
pub(super) fn withholding(fence: Fence, session: &Session) -> Withholding {
    Withholding { fence, silence_micros: session.terms.withholding_micros() }
}
