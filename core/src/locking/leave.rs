//! Leaves the queue of a lock.

use super::hand_over::{Draft, HeldAt};
use super::{live_session, refused};
use crate::lock::{Ask, AskId, AskState, GrantEnd, LockValue};
use crate::rejection::Reason;
use crate::session::{Principal, SessionId};
use crate::time::Timestamp;
use crate::transaction::{BrokenState, Transaction};
use crate::update::Answer;

/// The command to leave the queue of a lock, because the caller's time is over or the caller has
/// cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leave {
    /// The session of the ask.
    pub session: SessionId,
    /// The service that opened the session.
    pub principal: Principal,
    /// The ask that leaves.
    pub ask: AskId,
}

/// Ends an ask. If the lock was granted to the ask meanwhile, the lock goes to the next ask (K09,
/// K10). Returns false if the ask is unknown or has ended.
///
/// # Errors
/// The store failed. The inner error is a refusal: the session is unknown, ended or another
/// service's, or the ask is another session's.
pub fn leave<T: Transaction>(tx: &mut T, command: &Leave, now: Timestamp) -> Answer<bool, T::Error> {
    let session = match live_session(tx, command.session, &command.principal)? {
        Ok(session) => session,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let Some(ask) = tx.row::<Ask>(&command.ask)? else { return Ok(Ok(false)) };
    if ask.session != command.session {
        return Ok(Err(refused(Reason::AskReused)));
    }
    let broken = BrokenState::AskWithoutLock(command.ask);
    let mut held = HeldAt::read(tx, &ask.lock)?.ok_or(broken)?;
    let mut draft = Draft::new(tx, now)?;
    match ask.state {
        AskState::Waiting(turn) => draft.finish(tx, &ask.lock, held.lock, &[(command.ask, turn)])?,
        AskState::Holding(_) => {
            let grant = *held.row().grant().filter(|grant| grant.ask == command.ask).ok_or(broken)?;
            draft.end(&mut held, (grant, GrantEnd::Left, LockValue::default()), None);
            draft.finish(tx, &ask.lock.base(), held.lock, &[])?;
        }
    }
    draft.write(tx, command.session, session.with_one_ask_less())?;
    Ok(Ok(true))
}
