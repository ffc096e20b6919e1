//! Finds asks that wait for each other in a circle, so that none of them is ever served (K15).
//!
//! A caller that waits for a lock while it holds others keeps those who wait for them. An ask names the
//! asks that its caller [holds](Ask::held), so the search follows who waits for whom. It then strikes out
//! all that will end (R. C. Holt, "Some Deadlock Properties of Computer Systems", 1972): callers that do
//! not wait go on, and who waits only for such callers is served. What remains waits for ever.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::division::ShareMode;
use crate::lock::{Ask, AskId, AskState, LockPath};
use crate::session::SessionId;

/// The most asks of one lock, and the most of all, that a search follows. Any other ask counts as one that
/// will end.
pub const MAX_SEARCHED_ASKS: usize = 1_000;

/// A read of asks that a search needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CircleRead {
    /// The asks that hold this lock or a slot of it, and the first [`MAX_SEARCHED_ASKS`] that wait for it.
    OfLock(LockPath),
    /// All asks of this session.
    OfSession(SessionId),
}

/// The search for a circle in which one ask waits.
#[derive(Debug)]
pub struct CircleSearch {
    start: AskId,
    asks: FxHashMap<AskId, Ask>,
    locks: BTreeMap<LockPath, Line>,
    // The asks that wait while the caller holds this one.
    inside: FxHashMap<AskId, Vec<AskId>>,
    sessions: FxHashSet<SessionId>,
    open: Vec<CircleRead>,
}

/// The asks of one lock.
#[derive(Debug, Default)]
struct Line {
    holders: Vec<AskId>,
    // In the order in which they are served.
    waiting: Vec<AskId>,
}

/// Something that must happen before the first ask is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Needed {
    /// This ask holds its lock.
    Served(AskId),
    /// This ask has ended.
    Ended(AskId),
}

/// The part of a line before some ask: the last asks that share the lock in one way, and all before them.
#[derive(Default)]
struct Sharers {
    share: Option<ShareMode>,
    members: Vec<AskId>,
    // The asks before them, which all end before one of them is served.
    before: Vec<AskId>,
}

impl Sharers {
    /// Adds the next ask of the line.
    fn add(&mut self, id: AskId, share: Option<ShareMode>) {
        if share.is_none() || share != self.share {
            self.before.append(&mut self.members);
            self.share = share;
        }
        self.members.push(id);
    }

    /// Makes room for an ask that shares in this way as the next one. Returns the number of slots.
    fn admit(&mut self, share: Option<ShareMode>) -> usize {
        if share.is_none() || share != self.share {
            self.before.append(&mut self.members);
        }
        share.map_or(1, |share| share.slots() as usize)
    }
}

impl CircleSearch {
    /// Begins the search for a circle in which this ask waits.
    pub fn new(id: AskId, ask: Ask) -> Self {
        let mut search = Self {
            start: id,
            asks: FxHashMap::default(),
            locks: BTreeMap::new(),
            inside: FxHashMap::default(),
            sessions: FxHashSet::default(),
            open: Vec::new(),
        };
        search.follow(id, ask);
        search
    }

    /// Returns the next read that the search needs, `None` if it needs none.
    pub fn next_read(&self) -> Option<&CircleRead> {
        self.open.last()
    }

    /// Takes the answer to [`next_read`](Self::next_read).
    pub fn answer(&mut self, found: Vec<(AskId, Ask)>) {
        match self.open.pop() {
            Some(CircleRead::OfLock(lock)) => self.take_line(lock, found),
            Some(CircleRead::OfSession(_)) => self.take_session(found),
            None => {}
        }
    }

    /// Takes an ask into the search, whose neighbours are then read.
    fn follow(&mut self, id: AskId, ask: Ask) {
        let lock = ask.lock.base();
        if !self.locks.contains_key(&lock) {
            self.locks.insert(lock.clone(), Line::default());
            self.open.push(CircleRead::OfLock(lock));
        }
        if self.sessions.insert(ask.session) {
            self.open.push(CircleRead::OfSession(ask.session));
        }
        self.asks.insert(id, ask);
    }

    fn take_line(&mut self, lock: LockPath, mut found: Vec<(AskId, Ask)>) {
        let turn = |ask: &Ask| match ask.state {
            AskState::Waiting(turn) => turn,
            AskState::Holding(_) => 0,
        };
        found.sort_unstable_by_key(|(_, ask)| turn(ask));
        let mut line = Line::default();
        for (id, ask) in found {
            if self.asks.len() >= MAX_SEARCHED_ASKS && !self.asks.contains_key(&id) {
                continue;
            }
            match ask.state {
                AskState::Waiting(_) => line.waiting.push(id),
                AskState::Holding(_) => line.holders.push(id),
            }
            self.follow(id, ask);
        }
        self.locks.insert(lock, line);
    }

    fn take_session(&mut self, found: Vec<(AskId, Ask)>) {
        for (id, ask) in found.into_iter().filter(|(_, ask)| matches!(ask.state, AskState::Waiting(_))) {
            let is_known = self.asks.contains_key(&id);
            if ask.held.is_empty() || !is_known && self.asks.len() >= MAX_SEARCHED_ASKS {
                continue;
            }
            ask.held.iter().for_each(|held| self.inside.entry(*held).or_default().push(id));
            if !is_known {
                self.follow(id, ask);
            }
        }
    }

    /// Returns the asks that wait in a circle with the first one, which is among them; empty if it waits
    /// in no circle. Must be called when no read is needed any more.
    pub fn circle(&self) -> Vec<AskId> {
        let served = self.served();
        let held = self.asks.get(&self.start).map_or(&[][..], |ask| &ask.held);
        let start = Needed::Served(self.start);
        // From each need, the one because of which it is needed.
        let (mut because, mut open) = (FxHashMap::default(), vec![start]);
        while let Some(need) = open.pop() {
            if let Needed::Ended(id) = need
                && held.contains(&id)
            {
                return self.waiting(std::iter::successors(Some(need), |need| because.get(need).copied()));
            }
            for next in self.needs(need, &served) {
                if next != start && !because.contains_key(&next) {
                    because.insert(next, need);
                    open.push(next);
                }
            }
        }
        Vec::new()
    }

    /// Returns the ask of a circle that asked last, which closed the circle.
    pub fn last_of(&self, circle: &[AskId]) -> Option<AskId> {
        circle.iter().copied().max_by_key(|id| (self.asks.get(id).map(|ask| ask.asked_at), *id))
    }

    /// Returns what must happen before an ask is served or has ended, and never will.
    fn needs(&self, need: Needed, served: &FxHashSet<AskId>) -> Vec<Needed> {
        match need {
            Needed::Ended(id) => {
                let unserved = (!served.contains(&id)).then_some(id);
                unserved.into_iter().chain(self.unserved_inside(id, served)).map(Needed::Served).collect()
            }
            Needed::Served(id) => self.needs_of_waiting(id, served),
        }
    }

    fn needs_of_waiting(&self, id: AskId, served: &FxHashSet<AskId>) -> Vec<Needed> {
        let Some(ask) = self.asks.get(&id) else { return Vec::new() };
        let Some(line) = self.locks.get(&ask.lock.base()) else { return Vec::new() };
        let mut sharers = self.holding(line);
        for ahead in line.waiting.iter().take_while(|ahead| **ahead != id) {
            sharers.add(*ahead, self.share_of(*ahead));
        }
        let slots = sharers.admit(ask.share);
        let unended = |ids: &[AskId]| -> Vec<Needed> {
            ids.iter().filter(|id| !self.ends(**id, served)).map(|id| Needed::Ended(*id)).collect()
        };
        let mut needs = unended(&sharers.before);
        needs.extend(sharers.members.iter().filter(|id| !served.contains(*id)).map(|id| Needed::Served(*id)));
        let remaining = unended(&sharers.members);
        if remaining.len() >= slots {
            needs.extend(remaining);
        }
        needs
    }

    /// Returns the asks that hold their locks now or will hold them. Each round walks along the line of
    /// every lock once.
    fn served(&self) -> FxHashSet<AskId> {
        let mut served = FxHashSet::default();
        loop {
            let before = served.len();
            self.locks.values().for_each(|line| self.serve(line, &mut served));
            if served.len() == before {
                return served;
            }
        }
    }

    /// Adds the asks of one line that are served, provided that these others are.
    fn serve(&self, line: &Line, served: &mut FxHashSet<AskId>) {
        served.extend(&line.holders);
        let sharers = self.holding(line);
        let unended =
            |ids: &[AskId], served: &FxHashSet<AskId>| ids.iter().filter(|id| !self.ends(**id, served)).count();
        let mut share = sharers.share;
        let (mut is_free, mut is_served) = (unended(&sharers.before, served) == 0, true);
        let mut remaining = unended(&sharers.members, served);
        for id in &line.waiting {
            let own = self.share_of(*id);
            if own.is_none() || own != share {
                (share, is_free, is_served) = (own, is_free && remaining == 0, true);
                remaining = 0;
            }
            if is_free && is_served && remaining < own.map_or(1, |share| share.slots() as usize) {
                served.insert(*id);
            }
            is_served = served.contains(id);
            remaining += usize::from(!self.ends(*id, served));
        }
    }

    /// Returns the holders of a lock as the beginning of its line. All share it in one way, or one holds it
    /// alone.
    fn holding(&self, line: &Line) -> Sharers {
        let mut sharers = Sharers::default();
        line.holders.iter().for_each(|id| sharers.add(*id, self.share_of(*id)));
        sharers
    }

    fn share_of(&self, id: AskId) -> Option<ShareMode> {
        self.asks.get(&id)?.share
    }

    /// True if an ask ends, provided that these are `served`: it holds its lock, and its caller does not
    /// wait inside for ever.
    fn ends(&self, id: AskId, served: &FxHashSet<AskId>) -> bool {
        served.contains(&id) && self.unserved_inside(id, served).next().is_none()
    }

    fn unserved_inside(&self, id: AskId, served: &FxHashSet<AskId>) -> impl Iterator<Item = AskId> {
        let inside = self.inside.get(&id).map_or(&[][..], Vec::as_slice);
        inside.iter().filter(|inside| !served.contains(*inside)).copied()
    }

    /// Returns the asks on a way that wait.
    fn waiting(&self, way: impl Iterator<Item = Needed>) -> Vec<AskId> {
        let ids = way.map(|(Needed::Served(id) | Needed::Ended(id))| id);
        let waits = |id: &AskId| self.asks.get(id).is_some_and(|ask| matches!(ask.state, AskState::Waiting(_)));
        let mut waiting: Vec<_> = ids.filter(waits).collect();
        waiting.sort_unstable();
        waiting.dedup();
        waiting
    }
}
