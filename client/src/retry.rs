//! Decisions about retries of a call, as pure functions of the failures and of the time.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::refusal::{FENCE_PASSED, Refusal, RefusalKind};

/// Number and timing of the attempts of each call.
///
/// The client retries three failures: DEADLINE_EXCEEDED, UNAVAILABLE, and the server's own
/// `OVERLOADED`. All attempts of a begin carry one idempotency key, and commits, rollbacks and
/// reads may be repeated. So no call takes effect twice. A retry waits at least as long as the
/// server suggests in `google.rpc.RetryInfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most attempts of a call, at least 1. The time limit of the call ends the attempts too.
    pub attempts: u32,
    /// Time limit of one attempt.
    pub attempt_timeout: Duration,
    /// Longest wait before the second attempt; it doubles with each further attempt. The actual
    /// wait is random, between half of this time and all of it.
    pub backoff: Duration,
    /// Longest wait between two attempts, unless the server suggests a longer one.
    pub max_backoff: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 20,
            attempt_timeout: Duration::from_secs(3),
            backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
        }
    }
}

impl RetryPolicy {
    /// Returns this policy with a single attempt.
    #[must_use]
    pub fn once(self) -> Self {
        Self { attempts: 1, ..self }
    }
}

/// Decision after a failed attempt of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAttempt {
    /// Wait this long, then send the call again.
    After(Duration),
    /// Return the refusal: no attempt of the call took effect.
    RefusedForGood,
    /// Return that the outcome is unknown: an attempt of the call may have taken effect.
    OutcomeUnknown,
}

/// The attempts of one call so far, and the call's deadline.
#[derive(Clone, Debug)]
pub(crate) struct Attempts {
    policy: RetryPolicy,
    deadline: Instant,
    made: u32,
    may_have_taken_effect: bool,
}

impl Attempts {
    pub(crate) fn new(policy: RetryPolicy, timeout: Duration, now: Instant) -> Self {
        // If the timeout exceeds the range of the clock, a century is used instead.
        let century = Duration::from_secs(100 * 365 * 24 * 3600);
        let deadline = now.checked_add(timeout).unwrap_or_else(|| now + century.min(timeout));
        Self { policy, deadline, made: 0, may_have_taken_effect: false }
    }

    /// Counts a new attempt, and returns its time limit.
    pub(crate) fn start(&mut self, now: Instant) -> Duration {
        self.made = self.made.saturating_add(1);
        self.policy.attempt_timeout.min(self.remaining(now))
    }

    /// Returns the decision after a failed attempt. `jitter`, a random number from 0 to 1, spreads
    /// the retries of many clients.
    pub(crate) fn next(&mut self, refusal: &Refusal, now: Instant, jitter: f64) -> NextAttempt {
        self.may_have_taken_effect |= refusal.outcome_is_unknown();
        let wait = self.backoff(jitter).max(refusal.retry_after.unwrap_or_default());
        if is_retried(refusal) && self.made < self.policy.attempts && wait < self.remaining(now) {
            return NextAttempt::After(wait);
        }
        self.give_up(refusal)
    }

    /// Returns the decision that ends the call after this failure.
    pub(crate) fn give_up(&self, refusal: &Refusal) -> NextAttempt {
        let is_silent = self.may_have_taken_effect && tells_nothing_of_earlier_attempts(refusal);
        if refusal.outcome_is_unknown() || is_silent {
            NextAttempt::OutcomeUnknown
        } else {
            NextAttempt::RefusedForGood
        }
    }

    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        self.deadline.saturating_duration_since(now)
    }

    /// Returns the wait before the next attempt: the longest wait after this number of attempts,
    /// times a factor from 0.5 to 1.
    fn backoff(&self, jitter: f64) -> Duration {
        let doublings = self.made.saturating_sub(1).min(31);
        let longest = self.policy.backoff.saturating_mul(1 << doublings).min(self.policy.max_backoff);
        longest.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

/// Returns true if a call with this failure is retried, because the same call may succeed a moment
/// later.
fn is_retried(refusal: &Refusal) -> bool {
    match refusal.code {
        Code::Unavailable | Code::DeadlineExceeded => true,
        // Without the reason `OVERLOADED`, the cause may be an answer larger than this client
        // accepts. A retry would not change that.
        Code::ResourceExhausted => refusal.reason == "OVERLOADED",
        _ => false,
    }
}

/// Returns true if a call gets this refusal although an earlier attempt of it may have taken effect.
/// After any other refusal none has: the repeated call would have succeeded (B09, B22).
fn tells_nothing_of_earlier_attempts(refusal: &Refusal) -> bool {
    // An overloaded server did not decide the call. A lock remembers only its last ended grant, so a
    // release that is repeated after the next grant has ended is refused (K19).
    refusal.kind() == RefusalKind::Overloaded || refusal.reason == FENCE_PASSED
}

#[cfg(test)]
mod tests {
    use tonic::Status;
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;

    const NO_JITTER: f64 = 1.0;

    fn attempts(policy: RetryPolicy, now: Instant) -> Attempts {
        let mut attempts = Attempts::new(policy, Duration::from_secs(10), now);
        attempts.start(now);
        attempts
    }

    fn refusal(code: Code) -> Refusal {
        Refusal::of(&Status::new(code, "no"))
    }

    fn overloaded(retry_after: Duration) -> Refusal {
        let mut details = ErrorDetails::new();
        details.set_error_info("OVERLOADED", "leasehold", std::collections::HashMap::new());
        details.set_retry_info(Some(retry_after));
        Refusal::of(&Status::with_error_details(Code::ResourceExhausted, "no", details))
    }

    #[test]
    fn only_failures_without_a_decision_are_retried() {
        let now = Instant::now();
        let backoff = NextAttempt::After(Duration::from_millis(100));
        for (code, expected) in [
            (Code::Unavailable, backoff),
            (Code::DeadlineExceeded, backoff),
            (Code::AlreadyExists, NextAttempt::RefusedForGood),
            (Code::FailedPrecondition, NextAttempt::RefusedForGood),
            (Code::InvalidArgument, NextAttempt::RefusedForGood),
            (Code::ResourceExhausted, NextAttempt::RefusedForGood),
            (Code::Internal, NextAttempt::OutcomeUnknown),
            (Code::Unknown, NextAttempt::OutcomeUnknown),
            (Code::Cancelled, NextAttempt::OutcomeUnknown),
        ] {
            let mut attempts = attempts(RetryPolicy::default(), now);
            assert_eq!(attempts.next(&refusal(code), now, NO_JITTER), expected, "{code:?}");
        }
    }

    #[test]
    fn a_retry_waits_as_long_as_the_server_asks_for() {
        let now = Instant::now();
        let asked = Duration::from_secs(5);
        let mut patient = attempts(RetryPolicy::default(), now);
        assert_eq!(patient.next(&overloaded(asked), now, NO_JITTER), NextAttempt::After(asked));
        let late = now + Duration::from_secs(6);
        assert_eq!(patient.next(&overloaded(asked), late, NO_JITTER), NextAttempt::RefusedForGood);
    }

    #[test]
    fn the_wait_doubles_up_to_its_bound() {
        let now = Instant::now();
        let policy = RetryPolicy { max_backoff: Duration::from_millis(300), ..RetryPolicy::default() };
        let mut attempts = attempts(policy, now);
        let mut waits = Vec::new();
        for jitter in [1.0, 1.0, 1.0, 0.0] {
            waits.push(attempts.next(&refusal(Code::Unavailable), now, jitter));
            attempts.start(now);
        }
        let waits_in_millis = [100, 200, 300, 150].map(|millis| NextAttempt::After(Duration::from_millis(millis)));
        assert_eq!(waits, waits_in_millis);
    }

    #[test]
    fn attempts_end_with_their_number_and_with_the_timeout() {
        let now = Instant::now();
        let unavailable = refusal(Code::Unavailable);
        let mut single = attempts(RetryPolicy::default().once(), now);
        assert_eq!(single.next(&unavailable, now, NO_JITTER), NextAttempt::OutcomeUnknown);
        let mut late = attempts(RetryPolicy::default(), now);
        let end = now + Duration::from_millis(9_950);
        assert_eq!(late.start(end), Duration::from_millis(50));
        assert_eq!(late.next(&unavailable, end, NO_JITTER), NextAttempt::OutcomeUnknown);
    }

    #[test]
    fn an_overloaded_server_says_nothing_about_the_attempts_before() {
        let now = Instant::now();
        let mut fresh = attempts(RetryPolicy::default().once(), now);
        assert_eq!(fresh.next(&overloaded(Duration::ZERO), now, NO_JITTER), NextAttempt::RefusedForGood);
        let mut retried = attempts(RetryPolicy { attempts: 2, ..RetryPolicy::default() }, now);
        retried.next(&refusal(Code::DeadlineExceeded), now, NO_JITTER);
        retried.start(now);
        assert_eq!(retried.next(&overloaded(Duration::ZERO), now, NO_JITTER), NextAttempt::OutcomeUnknown);
        assert_eq!(retried.next(&refusal(Code::AlreadyExists), now, NO_JITTER), NextAttempt::RefusedForGood);
    }

    #[test]
    fn k19_a_passed_fence_says_nothing_about_the_attempts_before() {
        let now = Instant::now();
        let mut details = ErrorDetails::new();
        details.set_error_info(FENCE_PASSED, "leasehold", std::collections::HashMap::new());
        let passed = Refusal::of(&Status::with_error_details(Code::FailedPrecondition, "no", details));
        let mut fresh = attempts(RetryPolicy::default(), now);
        assert_eq!(fresh.next(&passed, now, NO_JITTER), NextAttempt::RefusedForGood);
        let mut retried = attempts(RetryPolicy::default(), now);
        retried.next(&refusal(Code::Unavailable), now, NO_JITTER);
        retried.start(now);
        assert_eq!(retried.next(&passed, now, NO_JITTER), NextAttempt::OutcomeUnknown);
    }
}
