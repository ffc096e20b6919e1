//! Random worlds of clocks and observers: hosts that stop, ticks that come late, restarts.

use leasehold_core::lease::Fence;
use leasehold_core::lock::Withholding;
use leasehold_core::locking::end::{Cause, End};
use leasehold_core::observer::{Observer, Renewal};
use proptest::prelude::*;

use super::properties::config;
use super::world::{DURATION, GRACE, lock, session, terms};

const TICK: u64 = 250_000;

/// One event of a world with one host and one session.
#[derive(Clone, Debug)]
enum Event {
    /// This many microseconds pass while the host is awake.
    Awake(u64),
    /// Any time passes while the host is stopped; afterwards the host ticks once.
    Stopped,
    Renew,
    /// The host starts again, with a new observer.
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1..700_000_u64).prop_map(Event::Awake),
        1 => Just(Event::Stopped),
        2 => Just(Event::Renew),
        1 => Just(Event::Restart),
    ]
}

proptest! {
    #![proptest_config(config())]

    /// K06, K07: the end of a session is not proposed before its host was awake for duration and
    /// grace, counted from the last renewal or the start of the host. The end of a silent session
    /// is proposed soon after.
    #[test]
    fn k06_only_observed_silence_ends_a_session(events in proptest::collection::vec(event(), 1..120)) {
        let mut observer = Observer::new(TICK);
        observer.watch(session(0), terms(), 7);
        // `phase` is the time since the last tick.
        let (mut awake, mut phase) = (0, 0);
        for event in events {
            match event {
                Event::Awake(micros) => {
                    awake += micros;
                    phase += micros;
                    while phase >= TICK {
                        phase -= TICK;
                        observer.tick();
                    }
                }
                Event::Stopped => {
                    observer.tick();
                    // The late tick counts as one whole tick, of which the host was awake for
                    // `phase` only, and `awake` has that part already.
                    awake += TICK - phase;
                    phase = 0;
                }
                Event::Renew => {
                    if observer.renew(session(0)) == Renewal::Renewed {
                        awake = 0;
                    }
                }
                Event::Restart => {
                    observer = Observer::new(TICK);
                    observer.watch(session(0), terms(), 7);
                    (awake, phase) = (0, 0);
                }
            }
            match observer.silent(1).as_slice() {
                [] => prop_assert!(awake < DURATION + GRACE + 3 * TICK, "a silent session is proposed: {awake}"),
                [End { cause: Cause::Silence(silence), .. }] => {
                    prop_assert!(awake >= DURATION + GRACE, "{awake}");
                    prop_assert!((DURATION + GRACE..=awake).contains(&silence.quiet_micros));
                    prop_assert_eq!(silence.renewals_seen, 7);
                    prop_assert_eq!(observer.renew(session(0)), Renewal::EndProposed);
                    observer.resume(session(0));
                    awake = 0;
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}

/// K06: the silence of a session that has moved here starts after the window of its former host,
/// although the session renews before, and its new host begins anew.
#[test]
fn k06_a_moved_session_is_silent_only_after_the_window() {
    let mut observer = Observer::new(TICK);
    observer.watch_moved(session(0), terms(), 7);
    assert_eq!(observer.renew(session(0)), Renewal::Renewed);
    observer.restart();
    observer.resume(session(0));
    let ticks = (GRACE / 2).div_ceil(TICK) + (DURATION + GRACE) / TICK;
    (0..ticks).for_each(|_| observer.tick());
    assert_eq!(observer.silent(1), []);
    observer.tick();
    assert_eq!(observer.silent(1).len(), 1);
}

/// A host shows for how many ticks each session was silent, and each lock withheld.
#[test]
fn an_observer_tells_the_ticks_of_silence() {
    let mut observer = Observer::new(TICK);
    [1, 0].into_iter().for_each(|number| observer.watch(session(number), terms(), 0));
    (0..11).for_each(|_| observer.tick());
    assert_eq!(observer.renew(session(1)), Renewal::Renewed);
    let withholding = Withholding { fence: Fence(3), silence_micros: TICK };
    observer.watch_lock(lock(0), withholding);
    observer.tick();
    assert_eq!(observer.silent(1).len(), 1);
    assert_eq!(observer.silences(), [(session(0), 12, true), (session(1), 1, false)]);
    assert_eq!(observer.withheld(), [(lock(0), 1)]);
}

/// K07: sessions that expire after a restart are proposed a few at a time, the longest silence
/// first.
#[test]
fn k07_the_ends_of_many_sessions_are_spread_out() {
    let mut observer = Observer::new(TICK);
    for number in 0..10 {
        observer.watch(session(number), terms(), 0);
    }
    observer.tick();
    assert_eq!(observer.renew(session(3)), Renewal::Renewed);
    (0..11).for_each(|_| observer.tick());
    let first: Vec<_> = observer.silent(4).into_iter().map(|end| end.session).collect();
    assert_eq!(first, [0, 1, 2, 4].map(session));
    assert_eq!(observer.silent(100).len(), 6, "a judged session is not proposed again");
    observer.unwatch(session(0));
    assert_eq!(observer.renew(session(0)), Renewal::Unknown);
}
