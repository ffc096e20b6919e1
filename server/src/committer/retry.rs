//! The writer's reaction to a failed attempt to commit a group, as a pure function.
//! [`super::writer`] executes the returned [`Reaction`].
//!
//! | failure | a group of several commands | a single command |
//! |---|---|---|
//! | `Misspeculated` | retry now | retry now |
//! | `Conflict` | retry after a random pause; split after [`MAX_CONFLICTS`] | likewise; reject after [`MAX_CONFLICTS`] |
//! | `Away` | requeue, retry after a growing pause, or reject | likewise |
//! | `Exhausted` | as `Away` | likewise |
//! | `StatementTimeout` | split; as `Away` if the store is away already | as `Away` |
//! | `Locked`, `Row` | split | reject |
//! | `Fatal` | halt | halt |

use std::time::Duration;

use crate::store::Failure;

/// The number of races that a group may lose against other groups before its commands are tried one
/// at a time.
pub(super) const MAX_CONFLICTS: u32 = 100;
/// The longest random pause after a group's first lost race. With each further lost race, the
/// longest pause grows by this time.
const CONFLICT_PAUSE: Duration = Duration::from_micros(100);
/// The pause before the third attempt to reach a store that is away; the second attempt comes at
/// once. Each further pause is twice as long, up to [`MAX_OUTAGE_PAUSE`].
const MIN_OUTAGE_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause between two attempts to reach a store that is away.
const MAX_OUTAGE_PAUSE: Duration = Duration::from_millis(400);

/// The reaction of a writer after a failed attempt to commit a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Decide the group again at once.
    RetryNow,
    /// Decide the group again after a pause.
    RetryAfter(Duration),
    /// Decide the commands of the group one at a time.
    Split,
    /// Put the commands of the group back into the queue, for another writer.
    Requeue,
    /// Refuse the commands of the group.
    Reject,
    /// Refuse the group's commands and all later ones: nothing may be written until a restart.
    Halt,
}

/// A failed attempt to commit a group of commands, and the circumstances that decide the reaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// The number of commands in the group.
    pub(super) commands: usize,
    /// The number of attempts to commit this group, this one included.
    pub(super) number: u32,
    /// The number of races that the group lost before this attempt.
    pub(super) conflicts: u32,
    /// The number of attempts before this one in which the store was away.
    pub(super) outages: u32,
    /// True if the group's changes may have been committed although the attempt failed.
    pub(super) may_be_committed: bool,
    /// The time for which the store has been away; `None` if this attempt does not show an outage.
    pub(super) away_for: Option<Duration>,
    /// The longest time that commands wait for a store that is away, before they are refused.
    pub(super) patience: Duration,
    /// True if another writer reaches the store and takes commands from the queue.
    pub(super) has_other_writers: bool,
    /// True if the server is stopping.
    pub(super) is_stopping: bool,
    /// A random number, from which the random pause is computed.
    pub(super) random: u64,
}

/// True if the failure of a group shows that the store can't be reached. A statement timeout counts
/// as an outage if the group has one command, or if the store was away already.
pub(super) fn is_outage(failure: Failure, commands: usize, is_away: bool) -> bool {
    match failure {
        Failure::Away | Failure::Exhausted => true,
        Failure::StatementTimeout => commands == 1 || is_away,
        _ => false,
    }
}

/// Returns the reaction to a failed attempt to commit a group.
pub(super) fn next(failure: Failure, attempt: &Attempt) -> Reaction {
    let alone_or_split = if attempt.commands > 1 { Reaction::Split } else { Reaction::Reject };
    if let Some(away_for) = attempt.away_for {
        return after_outage(attempt, away_for);
    }
    match failure {
        Failure::Fatal => Reaction::Halt,
        Failure::Misspeculated => Reaction::RetryNow,
        Failure::Conflict if attempt.conflicts < MAX_CONFLICTS => Reaction::RetryAfter(conflict_pause(attempt)),
        Failure::Conflict | Failure::Locked | Failure::Row | Failure::StatementTimeout => alone_or_split,
        // INVARIANT: these are outages, so `away_for` was given.
        Failure::Away | Failure::Exhausted => Reaction::Reject,
    }
}

fn after_outage(attempt: &Attempt, away_for: Duration) -> Reaction {
    // Another writer may decide the commands only if this writer's attempt was certainly not
    // committed.
    if !attempt.may_be_committed && attempt.has_other_writers {
        return Reaction::Requeue;
    }
    // The first attempt may have used a connection that broke long before. Its failure says little
    // about the store now, so it is always retried.
    let is_patient = attempt.number == 1 || away_for < attempt.patience;
    if !is_patient || attempt.is_stopping {
        return Reaction::Reject;
    }
    Reaction::RetryAfter(outage_pause(attempt.outages))
}

/// A random pause after a lost race. Without it, two groups that changed the same rows would meet
/// again.
fn conflict_pause(attempt: &Attempt) -> Duration {
    let longest = CONFLICT_PAUSE * (attempt.conflicts + 1);
    let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(attempt.random % micros.saturating_add(1))
}

fn outage_pause(outages: u32) -> Duration {
    let Some(doublings) = outages.checked_sub(1) else { return Duration::ZERO };
    MIN_OUTAGE_PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(MAX_OUTAGE_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTEMPT: Attempt = Attempt {
        commands: 1,
        number: 1,
        conflicts: 0,
        outages: 0,
        may_be_committed: false,
        away_for: None,
        patience: Duration::from_secs(10),
        has_other_writers: false,
        is_stopping: false,
        random: 42,
    };

    fn away(seconds: u64) -> Attempt {
        Attempt { away_for: Some(Duration::from_secs(seconds)), ..ATTEMPT }
    }

    #[test]
    fn every_failure_has_its_step_for_one_command_and_for_several() {
        let retry = Reaction::RetryAfter(Duration::from_micros(42));
        for (failure, one, several) in [
            (Failure::Misspeculated, Reaction::RetryNow, Reaction::RetryNow),
            (Failure::Conflict, retry, retry),
            (Failure::StatementTimeout, Reaction::Reject, Reaction::Split),
            (Failure::Locked, Reaction::Reject, Reaction::Split),
            (Failure::Row, Reaction::Reject, Reaction::Split),
            (Failure::Fatal, Reaction::Halt, Reaction::Halt),
        ] {
            assert_eq!(next(failure, &ATTEMPT), one, "{failure:?}");
            assert_eq!(next(failure, &Attempt { commands: 2, ..ATTEMPT }), several, "{failure:?}");
        }
    }

    #[test]
    fn lost_races_end_in_a_split_and_then_in_a_rejection() {
        let lost = Attempt { conflicts: MAX_CONFLICTS, ..ATTEMPT };
        assert_eq!(next(Failure::Conflict, &lost), Reaction::Reject);
        assert_eq!(next(Failure::Conflict, &Attempt { commands: 2, ..lost }), Reaction::Split);
        let longest = Attempt { conflicts: 1, random: 200, ..ATTEMPT };
        assert_eq!(next(Failure::Conflict, &longest), Reaction::RetryAfter(CONFLICT_PAUSE * 2));
        assert_eq!(next(Failure::Conflict, &Attempt { random: 201, ..longest }), Reaction::RetryAfter(Duration::ZERO));
    }

    #[test]
    fn a_timeout_is_an_outage_if_it_cant_be_split_or_the_store_is_away() {
        for (failure, commands, is_away, expected) in [
            (Failure::Away, 5, false, true),
            (Failure::Exhausted, 5, false, true),
            (Failure::Exhausted, 1, false, true),
            (Failure::StatementTimeout, 5, false, false),
            (Failure::StatementTimeout, 1, false, true),
            (Failure::StatementTimeout, 5, true, true),
            (Failure::Locked, 1, true, false),
            (Failure::Fatal, 1, true, false),
        ] {
            assert_eq!(is_outage(failure, commands, is_away), expected, "{failure:?} {commands} {is_away}");
        }
    }

    #[test]
    fn a_group_is_not_split_if_the_store_lacks_a_resource() {
        let full = |attempt| next(Failure::Exhausted, &Attempt { commands: 512, ..attempt });
        assert_eq!(full(away(0)), Reaction::RetryAfter(Duration::ZERO));
        assert_eq!(full(Attempt { number: 2, outages: 1, ..away(9) }), Reaction::RetryAfter(MIN_OUTAGE_PAUSE));
        assert_eq!(full(Attempt { number: 2, ..away(10) }), Reaction::Reject);
        assert_eq!(full(Attempt { has_other_writers: true, ..away(0) }), Reaction::Requeue);
    }

    #[test]
    fn a_store_that_is_away_is_waited_for_with_patience() {
        for (attempt, step) in [
            // The first attempt may have used a connection that broke long before, so it is retried.
            (Attempt { number: 1, ..away(60) }, Reaction::RetryAfter(Duration::ZERO)),
            (Attempt { number: 2, outages: 1, ..away(9) }, Reaction::RetryAfter(MIN_OUTAGE_PAUSE)),
            (Attempt { number: 3, outages: 2, ..away(9) }, Reaction::RetryAfter(MIN_OUTAGE_PAUSE * 2)),
            (Attempt { number: 99, outages: 98, ..away(9) }, Reaction::RetryAfter(MAX_OUTAGE_PAUSE)),
            (Attempt { number: 2, ..away(10) }, Reaction::Reject),
            (Attempt { is_stopping: true, ..away(0) }, Reaction::Reject),
            (Attempt { has_other_writers: true, ..away(0) }, Reaction::Requeue),
            (Attempt { has_other_writers: true, number: 9, ..away(60) }, Reaction::Requeue),
            // If the outcome is unknown, only this writer can find out if the group was committed.
            (
                Attempt { has_other_writers: true, may_be_committed: true, ..away(0) },
                Reaction::RetryAfter(Duration::ZERO),
            ),
        ] {
            assert_eq!(next(Failure::Away, &attempt), step, "{attempt:?}");
        }
    }
}
