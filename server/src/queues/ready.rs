//! The lanes of one queue that are ready, in memory.
//!
//! A window knows the first ready lanes of a queue from one read of the store, and follows the saves of this server
//! from then on. So many takes cost one read. What other servers change is found by the next read; a lane
//! that is not ready any more costs one take that gets nothing, never a request (Q04).

use std::collections::BTreeSet;

use leasehold_core::queue::{Lane, LanePath, LaneState};
use leasehold_core::rows::{LaneOrder, RowKind};
use leasehold_core::time::Timestamp;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

/// The most lanes of a list that a window knows.
const MAX_LANES: usize = 512;
/// The lanes of each list that one read finds, beside those that are offered to calls.
const READ_LANES: usize = 128;
/// The most changes that a window follows during one read. After more, the read is repeated.
const MAX_CHANGES: usize = 4_096;

/// The place of a lane in the lists from which workers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The lane is ready, with this rank.
    Ready(Timestamp),
    /// The lane is ready from the first time on, with the rank that is the second.
    Delayed(Timestamp, Timestamp),
}

impl Place {
    /// Returns the place of a lane, `None` if no worker can take it without a further change.
    pub(super) fn of(path: &LanePath, lane: &Lane) -> Option<Self> {
        let LaneState::Waiting(head) = &lane.state else { return None };
        match Lane::position(path, lane)? {
            LaneOrder::Ready(_, rank, _) => Some(Self::Ready(rank)),
            LaneOrder::Delayed(_, due_at, _) => Some(Self::Delayed(due_at, head.rank)),
            LaneOrder::Taken(..) | LaneOrder::Paused(_) | LaneOrder::Idle(..) => None,
        }
    }
}

/// A saved change of what a queue offers.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// The place of a lane, before and after.
    Lane(LanePath, Option<Place>, Option<Place>),
    /// True if the queue is open now.
    Queue(bool),
}

/// The lanes that the store offered at one time: up to `limit` of each list.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// True if lanes of the queue may be taken.
    pub is_open: bool,
    /// The first ready lanes.
    pub ready: Vec<(LanePath, Lane)>,
    /// The first delayed lanes, also those that are due by now.
    pub delayed: Vec<(LanePath, Lane)>,
    /// The most lanes that each of the two reads could find.
    pub limit: usize,
}

/// The first entries of a list. It has every entry before its end.
struct FirstOf<T> {
    entries: BTreeSet<T>,
    // `None` if all entries are known.
    end: Option<T>,
}

impl<T: Ord + Clone> FirstOf<T> {
    /// Returns the entries that a read has found. The last of `limit` entries is the end of what is known.
    fn read(entries: impl Iterator<Item = T>, limit: usize) -> Self {
        let mut entries: BTreeSet<_> = entries.collect();
        let end = if entries.len() < limit { None } else { entries.pop_last() };
        Self { entries, end }
    }

    fn insert(&mut self, entry: T) {
        if self.end.as_ref().is_none_or(|end| entry < *end) {
            self.entries.insert(entry);
        }
        if self.entries.len() > MAX_LANES {
            self.end = self.entries.pop_last();
        }
    }

    fn has_before_end(&self, entry: &T) -> bool {
        self.end.as_ref().is_none_or(|end| entry < end)
    }
}

type Ranked = (Timestamp, LanePath);

/// The lanes of one queue that are ready or will be.
pub(super) struct Window {
    ready: FirstOf<Ranked>,
    // Each lane with the time at which it is due and its rank.
    delayed: FirstOf<(Timestamp, Timestamp, LanePath)>,
    // The delayed lanes that are due by now.
    due: BTreeSet<Ranked>,
    is_open: bool,
    // The beginning of the read by which the window knows the store; `None` before the first.
    read_at: Option<Instant>,
    // True if a lane was offered that was not ready any more, so that more may be.
    is_doubtful: bool,
    // The changes since the beginning of the read that is under way.
    reading: Option<Journal>,
    // The lanes that calls are about to take, each with true if it has changed since it was offered.
    offered: FxHashMap<LanePath, bool>,
}

/// The changes that were saved during a read.
#[derive(Default)]
struct Journal {
    changes: Vec<Change>,
    // True if there were more than are kept, so that the read must be repeated.
    is_cut: bool,
}

/// The age that an answer may have: the earliest beginning of the read behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freshness {
    /// That of an offer; `None` for any.
    pub(super) of_offer: Option<Instant>,
    /// That of an offer by a window that is in doubt.
    pub(super) of_doubtful_offer: Instant,
    /// That of the answer that no lane is ready.
    pub(super) of_nothing: Instant,
}

/// The answer of a window to a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This lane is offered to the call. The flag is true if more lanes are ready.
    Lane(LanePath, Place, bool),
    /// No lane is ready. The first delayed lane is due then.
    Nothing(Option<Timestamp>),
    /// The store must be read.
    Unknown,
}

impl Default for Window {
    fn default() -> Self {
        let (ready, delayed) = (FirstOf::read([].into_iter(), 1), FirstOf::read([].into_iter(), 1));
        Self {
            ready,
            delayed,
            due: BTreeSet::new(),
            is_open: false,
            read_at: None,
            is_doubtful: false,
            reading: None,
            offered: FxHashMap::default(),
        }
    }
}

impl Window {
    /// Offers the first lane that is ready.
    pub(super) fn find(&mut self, now: Timestamp, freshness: Freshness) -> Found {
        let Some(read_at) = self.read_at else { return Found::Unknown };
        self.promote(now);
        let nothing = |due_at| match self.is_doubtful || read_at < freshness.of_nothing {
            true => Found::Unknown,
            false => Found::Nothing(due_at),
        };
        if !self.is_open {
            return nothing(None);
        }
        let earliest = if self.is_doubtful { Some(freshness.of_doubtful_offer) } else { freshness.of_offer };
        if earliest.is_some_and(|earliest| read_at < earliest) {
            return Found::Unknown;
        }
        let (ready, due) = (self.ready.entries.first(), self.due.first());
        let is_due = due.is_some_and(|due| ready.is_none_or(|ready| due < ready));
        let first = if is_due { due } else { ready };
        match first.filter(|first| self.ready.has_before_end(first)).cloned() {
            Some(first) => self.offer(first, is_due),
            // More lanes are ready, or delayed ones are due, than the window knows.
            None if self.ready.end.is_some() || self.delayed.end.as_ref().is_some_and(|end| end.0 <= now) => {
                Found::Unknown
            }
            // The first lane that the window does not know may be the next one that is due.
            None => nothing(self.delayed.entries.first().or(self.delayed.end.as_ref()).map(|(due_at, ..)| *due_at)),
        }
    }

    fn offer(&mut self, (rank, lane): Ranked, is_due: bool) -> Found {
        let first = (rank, lane);
        let place = match is_due {
            true => Place::Delayed(Timestamp::MIN, rank),
            false => Place::Ready(rank),
        };
        let list = if is_due { &mut self.due } else { &mut self.ready.entries };
        list.remove(&first);
        self.offered.insert(first.1.clone(), false);
        let has_more = !self.ready.entries.is_empty() || !self.due.is_empty() || self.ready.end.is_some();
        Found::Lane(first.1, place, has_more)
    }

    /// Moves delayed lanes that are due to the list of these.
    fn promote(&mut self, now: Timestamp) {
        let is_due = |(due_at, ..): &(Timestamp, Timestamp, LanePath)| *due_at <= now;
        while self.due.len() < MAX_LANES
            && self.delayed.entries.first().is_some_and(is_due)
            && let Some((_, rank, lane)) = self.delayed.entries.pop_first()
        {
            self.due.insert((rank, lane));
        }
    }

    /// Ends the offer of a lane to a call that did not take it, and offers it again.
    pub(super) fn put_back(&mut self, lane: &LanePath, place: Place) {
        if self.offered.remove(lane) == Some(false) {
            match place {
                Place::Ready(rank) => self.ready.insert((rank, lane.clone())),
                // A lane that was offered is due.
                Place::Delayed(_, rank) => _ = self.due.insert((rank, lane.clone())),
            }
        }
    }

    /// Ends the offer of a lane to a call that has taken it.
    pub(super) fn taken(&mut self, lane: &LanePath) {
        self.offered.remove(lane);
    }

    /// Ends the offer of a lane that was not ready any more.
    pub(super) fn not_ready(&mut self, lane: &LanePath) {
        self.is_doubtful |= self.offered.remove(lane).is_some();
    }

    /// True if the window has no read and no offer under way.
    pub(super) fn is_idle(&self) -> bool {
        self.reading.is_none() && self.offered.is_empty()
    }

    /// True if a call reads the store.
    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Begins a read. The caller must read the store afterwards, and end the read. Returns the limit of the
    /// read: it finds lanes beside those that are offered now.
    pub(super) fn begin_read(&mut self) -> usize {
        self.reading = Some(Journal::default());
        READ_LANES + self.offered.len()
    }

    /// Ends a read that has begun at `began`; `None` if it failed.
    pub(super) fn end_read(&mut self, read: Option<(Offer, Instant)>) {
        let Journal { changes, is_cut } = self.reading.take().unwrap_or_default();
        let Some((Offer { is_open, ready, delayed, limit }, began)) = read else { return };
        let places = |rows: Vec<(LanePath, Lane)>| {
            rows.into_iter().filter_map(|(path, lane)| Place::of(&path, &lane).map(|place| (place, path)))
        };
        let ready = places(ready).filter_map(|(place, path)| match place {
            Place::Ready(rank) => Some((rank, path)),
            Place::Delayed(..) => None,
        });
        let delayed = places(delayed).filter_map(|(place, path)| match place {
            Place::Delayed(due_at, rank) => Some((due_at, rank, path)),
            Place::Ready(_) => None,
        });
        (self.ready, self.delayed) = (FirstOf::read(ready, limit), FirstOf::read(delayed, limit));
        self.due.clear();
        (self.is_open, self.is_doubtful) = (is_open, false);
        self.read_at = (!is_cut).then_some(began);
        changes.into_iter().for_each(|change| self.apply(change));
        // A lane that is offered stays out of the lists, unless it has changed since.
        let is_offered = |path: &LanePath| self.offered.get(path) == Some(&false);
        self.ready.entries.retain(|(_, path)| !is_offered(path));
        self.delayed.entries.retain(|(.., path)| !is_offered(path));
    }

    /// Follows a saved change.
    pub(super) fn follow(&mut self, change: &Change) {
        if let Some(Journal { changes, is_cut }) = &mut self.reading {
            match changes.len() < MAX_CHANGES {
                true => changes.push(change.clone()),
                false => *is_cut = true,
            }
        }
        if let Change::Lane(lane, ..) = change {
            self.offered.get_mut(lane).into_iter().for_each(|has_changed| *has_changed = true);
        }
        self.apply(change.clone());
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Queue(is_open) => self.is_open = is_open,
            Change::Lane(lane, before, after) => {
                before.into_iter().for_each(|place| self.remove(&lane, place));
                after.into_iter().for_each(|place| self.add(&lane, place));
            }
        }
    }

    fn add(&mut self, lane: &LanePath, place: Place) {
        match place {
            Place::Ready(rank) => self.ready.insert((rank, lane.clone())),
            Place::Delayed(due_at, rank) => self.delayed.insert((due_at, rank, lane.clone())),
        }
    }

    fn remove(&mut self, lane: &LanePath, place: Place) {
        match place {
            Place::Ready(rank) => _ = self.ready.entries.remove(&(rank, lane.clone())),
            Place::Delayed(due_at, rank) => {
                self.delayed.entries.remove(&(due_at, rank, lane.clone()));
                self.due.remove(&(rank, lane.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeMap;
    use std::time::Duration;

    use leasehold_core::queue::{Head, QueuePath};
    use leasehold_core::queueing::reads::in_order;
    use proptest::prelude::*;

    use super::*;

    fn path(number: u64) -> LanePath {
        LanePath::parse(QueuePath::parse("sheets").unwrap(), &number.to_string()).unwrap()
    }

    /// Returns a lane that waits since time 0: for a worker, or until `due_at`.
    fn lane(rank: u64, due_at: u64) -> Lane {
        let [not_before, rank] = [due_at, rank].map(Timestamp::from_micros);
        Lane {
            state: LaneState::Waiting(Head { not_before, rank }),
            is_paused: false,
            waiting: 1,
            last_number: 1,
            create: None,
            note: None,
            last: None,
            updated_at: Timestamp::from_micros(0),
        }
    }

    /// A store with one queue, whose window follows all of its saves.
    struct World {
        window: Window,
        lanes: BTreeMap<LanePath, Lane>,
        now: Timestamp,
        began: Instant,
        offered: Vec<(LanePath, Place)>,
        // The offer that a read under way has found.
        read: Option<Offer>,
    }

    impl World {
        fn save(&mut self, number: u64, after: Option<Lane>) {
            let path = path(number);
            let before = match &after {
                Some(lane) => self.lanes.insert(path.clone(), lane.clone()),
                None => self.lanes.remove(&path),
            };
            let [before, after] = [before, after].map(|lane| lane.and_then(|lane| Place::of(&path, &lane)));
            self.window.follow(&Change::Lane(path, before, after));
        }

        fn list(&self, is_listed: impl Fn(Place) -> Option<(Timestamp, Timestamp)>) -> Vec<(LanePath, Lane)> {
            let listed = |(path, lane): (&LanePath, &Lane)| {
                Some((is_listed(Place::of(path, lane)?)?, (path.clone(), lane.clone())))
            };
            let listed: BTreeMap<_, _> =
                self.lanes.iter().filter_map(listed).map(|(at, row)| ((at, row.0.clone()), row)).collect();
            listed.into_values().collect()
        }

        fn ready(&self) -> Vec<(LanePath, Lane)> {
            self.list(|place| if let Place::Ready(rank) = place { Some((rank, rank)) } else { None })
        }

        fn delayed(&self) -> Vec<(LanePath, Lane)> {
            self.list(|place| if let Place::Delayed(due_at, rank) = place { Some((due_at, rank)) } else { None })
        }

        /// Returns the lanes that no call has been offered, in the engine's order.
        fn expected(&self) -> Vec<LanePath> {
            let is_due = |(_, lane): &(LanePath, Lane)| lane.is_ready(self.now);
            let mut all = in_order(self.ready(), self.delayed().into_iter().filter(is_due).collect());
            all.retain(|path| self.offered.iter().all(|(offered, _)| offered != path));
            all
        }

        fn begin_read(&mut self, limit: usize) {
            self.window.begin_read();
            let (mut ready, mut delayed) = (self.ready(), self.delayed());
            let limit = limit + self.offered.len();
            ready.truncate(limit);
            delayed.truncate(limit);
            self.read = Some(Offer { is_open: true, ready, delayed, limit });
        }

        fn end_read(&mut self) {
            let read = self.read.take().map(|offer| (offer, self.began));
            self.window.end_read(read);
        }

        /// Looks until the window needs no read, and checks what it has found.
        fn look(&mut self, limit: usize) {
            let old = self.began - Duration::from_secs(1);
            let freshness = Freshness { of_offer: None, of_doubtful_offer: old, of_nothing: old };
            loop {
                match self.window.find(self.now, freshness) {
                    Found::Unknown if self.read.is_some() => self.end_read(),
                    Found::Unknown => self.begin_read(limit),
                    Found::Nothing(due_at) => {
                        assert_eq!(self.expected(), []);
                        let first = self.delayed().into_iter().find(|(_, lane)| !lane.is_ready(self.now));
                        let due = |(path, lane): (LanePath, Lane)| match Place::of(&path, &lane) {
                            Some(Place::Delayed(due_at, _)) => Some(due_at),
                            _ => None,
                        };
                        let expected = first.and_then(due);
                        // The end of what is known may have been removed, and costs a look.
                        let is_early =
                            self.window.delayed.end.is_some() && due_at.is_some_and(|due_at| due_at > self.now);
                        let is_in_time = is_early && expected.is_none_or(|expected| due_at <= Some(expected));
                        return assert!(due_at == expected || is_in_time, "{due_at:?}, {expected:?}");
                    }
                    Found::Lane(path, place, has_more) => {
                        let expected = self.expected();
                        // Of many lanes that are due, the window knows those that were due first.
                        let is_exact = self.window.delayed.end.is_none();
                        assert!(if is_exact { expected.first() == Some(&path) } else { expected.contains(&path) });
                        assert!(has_more || !is_exact || expected.len() == 1);
                        return self.offered.push((path, place));
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// Q12: whatever is saved while the store is read, lanes are offered in the engine's order, each to one call at a
        /// time, and none is left out.
        #[test]
        fn q12_lanes_are_offered_in_order(
            limit in 2..5_usize, steps in prop::collection::vec((0..7_u8, 0..8_u64, 0..6_u64, 0..6_u64), 1..60),
        ) {
            let (now, began) = (Timestamp::from_micros(0), Instant::now());
            let (lanes, offered, read) = (BTreeMap::new(), Vec::new(), None);
            let mut world = World { window: Window::default(), lanes, now, began, offered, read };
            for (step, number, rank, due_at) in steps {
                let is_offered = world.offered.iter().any(|(offered, _)| *offered == path(number));
                match step {
                    0 | 1 if !is_offered => world.save(number, Some(lane(rank, due_at))),
                    2 => world.now = world.now.plus_micros(1),
                    3 if world.read.is_none() => world.begin_read(limit),
                    3 => world.end_read(),
                    4 if !world.offered.is_empty() => {
                        let (path, place) = world.offered.swap_remove(number as usize % world.offered.len());
                        match rank % 2 {
                            0 => world.window.put_back(&path, place),
                            _ => {
                                world.save(path.key().parse().unwrap(), None);
                                world.window.taken(&path);
                            }
                        }
                    }
                    5 | 6 => world.look(limit),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn q04_a_window_reads_again_after_a_lane_that_was_not_ready() {
        let (now, began) = (Timestamp::from_micros(0), Instant::now());
        let mut window = Window::default();
        let offer = |limit| Offer {
            is_open: true,
            ready: vec![(path(1), lane(1, 0)), (path(2), lane(2, 0))],
            delayed: vec![],
            limit,
        };
        let fresh = |age| {
            let earliest = began - age;
            Freshness { of_offer: None, of_doubtful_offer: earliest, of_nothing: began - Duration::from_secs(1) }
        };
        let limit = window.begin_read();
        window.end_read(Some((offer(limit), began)));
        assert!(matches!(window.find(now, fresh(Duration::ZERO)), Found::Lane(lane, _, true) if lane == path(1)));
        window.not_ready(&path(1));
        // Another lane is offered for a short time, and no call learns that there is none.
        assert!(
            matches!(window.find(now, fresh(Duration::from_millis(5))), Found::Lane(lane, _, false) if lane == path(2))
        );
        window.taken(&path(2));
        assert_eq!(window.find(now, fresh(Duration::from_millis(5))), Found::Unknown);
        window.begin_read();
        window.end_read(Some((Offer { is_open: true, limit, ..Offer::default() }, began)));
        assert_eq!(window.find(now, fresh(Duration::ZERO)), Found::Nothing(None));
        // A queue that is closed offers nothing, and all of its lanes when it opens.
        window.begin_read();
        window.follow(&Change::Queue(false));
        window.end_read(Some((offer(limit), began)));
        assert_eq!(window.find(now, fresh(Duration::ZERO)), Found::Nothing(None));
        window.follow(&Change::Queue(true));
        assert!(matches!(window.find(now, fresh(Duration::ZERO)), Found::Lane(lane, _, true) if lane == path(1)));
    }
}
