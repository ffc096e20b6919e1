//! An independent model of queues: each lane is a plain list, written from the promises Q01 to Q20. Requests in
//! progress are the first ones of the list.

use std::collections::BTreeMap;

/// A request of a submit.
#[derive(Clone, Debug)]
pub(crate) struct New {
    pub id: u128,
    pub lane: usize,
    pub creates: bool,
    pub priority: u8,
    pub delay: u64,
    pub most: u32,
    pub text: &'static str,
}

/// The way in which a worker settles.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settled {
    Completed,
    /// The work failed, and the next attempt is after this time; `None` for the backoff.
    Failed(Option<u64>),
    GivenBack,
}

/// One step of a random world. Holds are named by their age, so that a step stays meaningful in any world.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Open(u128),
    Close(u128),
    /// The session, and true if it was quiet for long enough.
    Silence(u128, bool),
    Evict(u128),
    ForgetSession(u128),
    /// Lets time pass.
    Wait(u64),
    Submit(Vec<New>),
    /// The session, the take, the lane, and the most requests.
    Take(u128, u128, usize, u32),
    /// Settles the hold of a lane that is this much older than the newest one.
    Settle(usize, usize, Settled),
    Note(usize, usize, &'static str),
    /// The lane with the age of the hold, true if the host looked on for long enough, and the time until the next
    /// attempt; `None` for the backoff.
    Reclaim(usize, usize, bool, Option<u64>),
    Withdraw(u128),
    Resubmit(u128),
    PauseQueue(usize, bool),
    PauseLane(usize, bool),
    /// The queue, and the most lanes of it that are taken at a time; 0 for any number.
    LimitQueue(usize, u32),
    ForgetRequest(u128),
    ForgetLane(usize),
}

/// The answer to a step: its result, or the code of the refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done(bool),
    Submitted(Vec<(u128, bool)>),
    /// The lane was not ready.
    Nothing,
    /// The fence, the requests with their attempts, and the note of a former worker.
    Taken(u64, Vec<(u128, u32)>, Option<&'static str>),
    Found(Option<&'static str>),
    Refused(&'static str),
}

pub(crate) const LANES: usize = 3;
/// The queue of each lane.
pub(crate) const QUEUE_OF: [usize; LANES] = [0, 0, 1];

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub id: u128,
    lane: usize,
    creates: bool,
    priority: u8,
    due: u64,
    pub tries: u32,
    most: u32,
    text: &'static str,
    came: u64,
}

/// A worker's hold of the first requests of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub session: u128,
    take: u128,
    pub fence: u64,
    pub count: usize,
    /// True if the queue had a limit when the hold began.
    counts: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    /// The requests that are not settled, those in progress first.
    pub line: Vec<Request>,
    pub hold: Option<Hold>,
    pub paused: bool,
    pub holds: Vec<Hold>,
    create: Option<u128>,
    /// The last hold that ended, and how.
    last: Option<(Hold, &'static str)>,
    /// The last note, and the requests that it is about.
    note: Option<(&'static str, Vec<u128>)>,
    is_known: bool,
}

impl Lane {
    /// Drops what was noted about a request that is not waited for any more.
    fn drop_note(&mut self, id: u128) {
        self.note.iter_mut().for_each(|(_, ids)| ids.retain(|noted| *noted != id));
    }
}

#[derive(Clone, Debug)]
struct Session {
    pub renewals: u64,
    ended: Option<&'static str>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    sessions: BTreeMap<u128, Session>,
    pub lanes: [Lane; LANES],
    paused: [bool; 2],
    limits: [u32; 2],
    /// The settled requests, each with its state.
    pub settled: BTreeMap<u128, (Request, &'static str)>,
    pub fence: u64,
    pub now: u64,
}

impl Model {
    pub(crate) fn at(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    pub(crate) fn renewals(&self, session: u128) -> u64 {
        self.sessions.get(&session).map_or(0, |session| session.renewals)
    }

    /// Returns the hold that a step names: the newest of the lane, or an older one.
    pub(crate) fn hold_of_age(&self, lane: usize, age: usize) -> Option<Hold> {
        let holds = &self.lanes[lane].holds;
        holds.len().checked_sub(1 + age).map(|at| holds[at])
    }

    /// Returns the lanes of a queue that can be taken, in the order in which they are offered.
    pub(crate) fn offered(&self, queue: usize) -> Vec<usize> {
        let is_ready = |lane: &usize| QUEUE_OF[*lane] == queue && self.is_ready(*lane);
        let mut lanes: Vec<_> = (0..LANES).filter(is_ready).collect();
        lanes.sort_by_key(|lane| {
            let first = &self.lanes[*lane].line[0];
            // A minute for each step of priority.
            first.came.max(first.due).saturating_sub(u64::from(first.priority) * 60_000_000)
        });
        lanes
    }

    fn is_ready(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        !lane.paused && lane.hold.is_none() && lane.line.first().is_some_and(|first| first.due <= self.now)
    }

    pub(crate) fn run(&mut self, step: &Step) -> Answer {
        match *step {
            Step::Open(session) => self.open(session),
            Step::Close(session) => self.end(session, "closed"),
            Step::Silence(session, enough) => match self.sessions.get(&session) {
                Some(Session { ended: None, .. }) if !enough => Answer::Refused("SESSION_ALIVE"),
                _ => self.end(session, "expired"),
            },
            Step::Evict(session) => self.end(session, "evicted"),
            Step::ForgetSession(session) => {
                let is_over = self.sessions.get(&session).is_some_and(|session| session.ended.is_some());
                self.sessions.retain(|id, _| *id != session || !is_over);
                Answer::Done(is_over)
            }
            Step::Wait(micros) => {
                self.now += micros;
                Answer::Done(true)
            }
            Step::Submit(ref all) => self.submit(all),
            Step::Take(session, take, lane, most) => self.take(session, take, lane, most),
            Step::Settle(lane, age, how) => self.settle(lane, age, how),
            Step::Note(lane, age, text) => self.note(lane, age, text),
            Step::Reclaim(lane, age, enough, retry) => self.reclaim(lane, age, enough, retry),
            Step::Withdraw(id) => self.withdraw(id),
            Step::Resubmit(id) => self.resubmit(id),
            Step::PauseQueue(queue, paused) => {
                Answer::Done(std::mem::replace(&mut self.paused[queue], paused) != paused)
            }
            Step::PauseLane(lane, paused) => {
                let lane = &mut self.lanes[lane];
                let is_changed = lane.paused != paused;
                (lane.paused, lane.is_known) = (paused, lane.is_known || is_changed);
                Answer::Done(is_changed)
            }
            Step::LimitQueue(queue, limit) => Answer::Done(std::mem::replace(&mut self.limits[queue], limit) != limit),
            Step::ForgetRequest(id) => {
                let found = self.settled.remove(&id);
                for lane in &mut self.lanes {
                    lane.create = lane.create.filter(|create| found.is_none() || *create != id);
                }
                Answer::Done(found.is_some())
            }
            Step::ForgetLane(lane) => self.forget_lane(lane),
        }
    }

    fn refusal(&self, session: u128) -> Option<Answer> {
        match self.sessions.get(&session) {
            None => Some(Answer::Refused("SESSION_NOT_FOUND")),
            Some(Session { ended: Some(_), .. }) => Some(Answer::Refused("SESSION_ENDED")),
            Some(_) => None,
        }
    }

    fn open(&mut self, session: u128) -> Answer {
        match self.sessions.get(&session) {
            Some(Session { ended: Some(_), .. }) => Answer::Refused("SESSION_ENDED"),
            Some(_) => Answer::Done(false),
            None => {
                self.sessions.insert(session, Session { renewals: 0, ended: None });
                Answer::Done(true)
            }
        }
    }

    fn end(&mut self, id: u128, how: &'static str) -> Answer {
        match self.sessions.get_mut(&id) {
            None => Answer::Refused("SESSION_NOT_FOUND"),
            Some(Session { ended: Some(before), .. }) if *before == how => Answer::Done(false),
            Some(Session { ended: Some(_), .. }) => Answer::Refused("SESSION_ENDED"),
            Some(session) => {
                session.ended = Some(how);
                Answer::Done(true)
            }
        }
    }

    /// Returns the request with this id, wherever it is.
    fn find(&self, id: u128) -> Option<&Request> {
        let mut open = self.lanes.iter().flat_map(|lane| &lane.line);
        open.find(|request| request.id == id).or_else(|| self.settled.get(&id).map(|(request, _)| request))
    }

    fn submit(&mut self, all: &[New]) -> Answer {
        let before = self.clone();
        let mut answers = Vec::new();
        for new in all {
            if let Some(known) = self.find(new.id) {
                let is_same = (known.lane, known.creates, known.priority, known.most, known.text)
                    == (new.lane, new.creates, new.priority, new.most, new.text);
                if !is_same {
                    *self = before;
                    return Answer::Refused("IDEMPOTENCY_KEY_REUSED");
                }
                answers.push((new.id, false));
                continue;
            }
            let (due, came) = (self.now + new.delay, self.now);
            let New { id, lane: at, creates, priority, most, text, .. } = *new;
            let lane = &mut self.lanes[at];
            lane.is_known = true;
            if let (true, Some(first)) = (creates, lane.create) {
                answers.push((first, false));
                continue;
            }
            lane.create = lane.create.or(creates.then_some(id));
            lane.line.push(Request { id, lane: at, creates, priority, due, tries: 0, most, text, came });
            answers.push((id, true));
        }
        Answer::Submitted(answers)
    }

    fn take(&mut self, session: u128, take: u128, at: usize, most: u32) -> Answer {
        if let Some(refusal) = self.refusal(session) {
            return refusal;
        }
        let (queue, limit) = (QUEUE_OF[at], self.limits[QUEUE_OF[at]]);
        let of_queue = self.lanes.iter().enumerate().filter(|(lane, _)| QUEUE_OF[*lane] == queue);
        let counted = of_queue.filter(|(_, lane)| lane.hold.is_some_and(|hold| hold.counts)).count();
        let is_full = limit > 0 && counted as u32 >= limit;
        let is_open = self.is_ready(at) && !self.paused[queue] && !is_full;
        let now = self.now;
        let lane = &mut self.lanes[at];
        if let Some(hold) = lane.hold.filter(|hold| hold.take == take) {
            return if hold.session == session { taken(lane, hold) } else { Answer::Refused("ASK_REUSED") };
        }
        if lane.last.is_some_and(|(hold, _)| hold.take == take) {
            return Answer::Refused("ASK_REUSED");
        }
        if !is_open {
            return Answer::Nothing;
        }
        let due = lane.line.iter().take_while(|request| request.due <= now);
        let updates = due.take_while(|request| !request.creates).count();
        // A create that is the first is taken alone.
        let count = updates.clamp(1, most as usize);
        lane.line[..count].iter_mut().for_each(|request| request.tries += 1);
        let is_noted = |id: u128| lane.note.as_ref().is_some_and(|(_, ids)| ids.contains(&id));
        if !is_noted(lane.line[0].id) {
            lane.note = None;
        }
        self.fence += 1;
        let hold = Hold { session, take, fence: self.fence, count, counts: limit > 0 };
        lane.hold = Some(hold);
        lane.holds.push(hold);
        // A take renews its session.
        self.sessions.get_mut(&session).unwrap().renewals += 1;
        taken(&self.lanes[at], hold)
    }

    fn settle(&mut self, at: usize, age: usize, how: Settled) -> Answer {
        let Some(hold) = self.hold_of_age(at, age) else { return Answer::Refused("SESSION_NOT_FOUND") };
        let Some(session) = self.sessions.get(&hold.session) else { return Answer::Refused("SESSION_NOT_FOUND") };
        let (word, retry) = match how {
            Settled::Completed => ("completed", Some(0)),
            Settled::Failed(retry) => ("failed", retry),
            Settled::GivenBack => ("given back", Some(0)),
        };
        if session.ended.is_none() && self.lanes[at].hold == Some(hold) {
            self.end_hold(at, word, retry);
            return Answer::Done(true);
        }
        match self.lanes[at].last {
            Some((last, before)) if (last, before) == (hold, word) => Answer::Done(false),
            _ if session.ended.is_some() => Answer::Refused("SESSION_ENDED"),
            _ => Answer::Refused("FENCE_PASSED"),
        }
    }

    /// Ends the hold of a lane. The requests that are not settled stay where they are.
    fn end_hold(&mut self, at: usize, how: &'static str, retry: Option<u64>) {
        let lane = &mut self.lanes[at];
        let hold = lane.hold.take().unwrap();
        let behind = lane.line.split_off(hold.count);
        let most_tries = lane.line.iter().map(|request| request.tries).max().unwrap();
        let retry = retry.unwrap_or_else(|| 300.min(1_u64 << (most_tries - 1)) * 1_000_000);
        for mut request in std::mem::replace(&mut lane.line, behind).into_iter().rev() {
            let state = match how {
                "completed" => "complete",
                "given back" => {
                    request.tries -= 1;
                    "new"
                }
                _ if request.tries == request.most => "error",
                _ => {
                    request.due = self.now + retry;
                    "new"
                }
            };
            if state == "new" {
                lane.line.insert(0, request);
                continue;
            }
            lane.drop_note(request.id);
            self.settled.insert(request.id, (request, state));
        }
        lane.last = Some((hold, how));
    }

    fn note(&mut self, at: usize, age: usize, text: &'static str) -> Answer {
        let Some(hold) = self.hold_of_age(at, age) else { return Answer::Refused("SESSION_NOT_FOUND") };
        if let Some(refusal) = self.refusal(hold.session) {
            return refusal;
        }
        let lane = &mut self.lanes[at];
        if lane.hold != Some(hold) {
            return Answer::Refused("FENCE_PASSED");
        }
        let ids = lane.line[..hold.count].iter().map(|request| request.id).collect();
        lane.note = Some((text, ids));
        Answer::Done(true)
    }

    fn reclaim(&mut self, at: usize, age: usize, enough: bool, retry: Option<u64>) -> Answer {
        let Some(hold) = self.hold_of_age(at, age) else { return Answer::Refused("FENCE_PASSED") };
        let lane = &self.lanes[at];
        if lane.hold != Some(hold) {
            let is_repeated = lane.last == Some((hold, "lost"));
            return if is_repeated { Answer::Done(false) } else { Answer::Refused("FENCE_PASSED") };
        }
        match self.sessions.get(&hold.session).map(|session| session.ended) {
            Some(None) => return Answer::Refused("SESSION_ALIVE"),
            Some(Some("closed" | "expired")) => {}
            _ if !enough => return Answer::Refused("LOCK_WITHHELD"),
            _ => {}
        }
        self.end_hold(at, "lost", retry);
        Answer::Done(true)
    }

    /// Returns the state of a request, with its lane and its place there if it is not settled.
    pub(crate) fn state(&self, id: u128) -> Option<(&'static str, Option<(usize, usize)>)> {
        for (at, lane) in self.lanes.iter().enumerate() {
            if let Some(place) = lane.line.iter().position(|request| request.id == id) {
                let is_taken = lane.hold.is_some_and(|hold| place < hold.count);
                return Some((if is_taken { "in progress" } else { "new" }, Some((at, place))));
            }
        }
        self.settled.get(&id).map(|(_, state)| (*state, None))
    }

    fn withdraw(&mut self, id: u128) -> Answer {
        let found = self.state(id);
        if let Some(("new", Some((at, place)))) = found {
            let lane = &mut self.lanes[at];
            lane.line.remove(place);
            lane.drop_note(id);
            lane.create = lane.create.filter(|create| *create != id);
        }
        Answer::Found(found.map(|(state, _)| state))
    }

    fn resubmit(&mut self, id: u128) -> Answer {
        let found = self.state(id).map(|(state, _)| state);
        if found == Some("error") {
            let (mut request, _) = self.settled.remove(&id).unwrap();
            (request.tries, request.due) = (0, self.now);
            let lane = &mut self.lanes[request.lane];
            lane.is_known = true;
            lane.line.push(request);
        }
        Answer::Found(found)
    }

    fn forget_lane(&mut self, at: usize) -> Answer {
        let lane = &mut self.lanes[at];
        let is_forgotten = lane.is_known && lane.line.is_empty() && !lane.paused && lane.create.is_none();
        if is_forgotten {
            *lane = Lane { holds: std::mem::take(&mut lane.holds), ..Lane::default() };
        }
        Answer::Done(is_forgotten)
    }
}

fn taken(lane: &Lane, hold: Hold) -> Answer {
    let requests = lane.line[..hold.count].iter().map(|request| (request.id, request.tries)).collect();
    Answer::Taken(hold.fence, requests, lane.note.as_ref().map(|(text, _)| *text))
}
