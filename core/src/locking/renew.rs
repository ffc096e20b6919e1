//! Writes a renewal of a session.

use super::live_session;
use crate::rows::Changes;
use crate::session::{Principal, Session, SessionId};
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::Answer;

/// The command to write a renewal, for a session that moves to another host. After this write, the
/// former host can't expire the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The session to renew.
    pub session: SessionId,
    /// The service that opened the session.
    pub principal: Principal,
}

/// Writes a renewal of a live session. Returns the number of written renewals.
///
/// # Errors
/// The store failed. The inner error is a refusal: the session is unknown, another service's or
/// ended (K02).
pub fn renew<T: Transaction>(tx: &mut T, command: &Renew, now: Timestamp) -> Answer<u64, T::Error> {
    let session = match live_session(tx, command.session, &command.principal)? {
        Ok(session) => session,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let renewals = session.renewals.saturating_add(1);
    let session = Session { renewals, updated_at: now, ..session };
    tx.write(Changes { sessions: vec![(command.session, Some(session))], ..Changes::default() })?;
    Ok(Ok(renewals))
}
