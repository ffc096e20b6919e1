//! Takes a lock from its holder.

use super::elapse::pass_on;
use super::end::withholding;
use super::hand_over::{Draft, HeldAt};
use super::refused;
use crate::lease::Fence;
use crate::lock::{GrantEnd, LockPath, LockState, LockValue};
use crate::rejection::Reason;
use crate::session::Session;
use crate::time::Timestamp;
use crate::transaction::{BrokenState, Transaction};
use crate::update::Answer;

/// The command of an operator to take a lock from its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Force {
    /// The lock or slot to take.
    pub lock: LockPath,
    /// The fence of the grant to end, so that a later grant is not taken by mistake.
    pub fence: Fence,
    /// True if the lock passes on at once, though its holder may still work under it. Only a fence
    /// that is checked then refuses the former holder's writes.
    pub at_once: bool,
}

/// Takes a lock from its holder. The lock is withheld until the holder's time is over, unless the
/// command says otherwise (K20). Returns false if the lock is withheld under this fence already.
///
/// # Errors
/// The store failed. The inner error is a refusal: the lock is not held under this fence.
pub fn force<T: Transaction>(tx: &mut T, command: &Force, now: Timestamp) -> Answer<bool, T::Error> {
    let Some(mut held) = HeldAt::read(tx, &command.lock)? else { return Ok(Err(refused(Reason::FencePassed))) };
    let grant = match held.row().state {
        LockState::Held(grant) if grant.fence == command.fence => grant,
        LockState::Withheld(withholding) if withholding.fence == command.fence => {
            return if command.at_once { pass_on(tx, held, now) } else { Ok(Ok(false)) };
        }
        _ => return Ok(Err(refused(Reason::FencePassed))),
    };
    let broken = BrokenState::SessionAsksDiffer(grant.session);
    let session = tx.row::<Session>(&grant.session)?.ok_or(broken)?.clone();
    let mut draft = Draft::new(tx, now)?;
    let withheld = (!command.at_once).then(|| withholding(grant.fence, &session));
    draft.end(&mut held, (grant, GrantEnd::Forced, LockValue::default()), withheld);
    draft.finish(tx, &command.lock.base(), held.lock, &[])?;
    draft.write(tx, grant.session, session.with_one_ask_less())?;
    Ok(Ok(true))
}
