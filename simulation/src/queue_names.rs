//! The names of a queue's lanes, and the ids of requests and takes.

use leasehold_core::queue::{LanePath, QueuePath, RequestId, TakeId};
use uuid::Uuid;

use crate::queue_message::WorkKind;
use crate::settings::{MAX_LANES, Rule, RulesOff};

const KEYS: [&str; MAX_LANES as usize] = ["blue", "green", "red"];

/// The id of request number 0. The number of the request, and that of the try, are in the last 32
/// bits.
const REQUEST: u128 = 0x01a2_0000_0000_7000_8003_0000_0000_0000;
/// The id of take number 0. The number of the take and the cell are in the last 32 bits.
const TAKE: u128 = 0x01a2_0000_0000_7000_8004_0000_0000_0000;
/// The number of bits that the number of a try or of a cell takes in an id.
const LOW_BITS: u32 = 4;

/// Returns the id under which a front submits the request with this number. Every try has the same
/// id, unless the rule for such ids is off.
pub fn request_id(number: u32, attempt: u8, rules_off: RulesOff) -> RequestId {
    let attempt = if rules_off.is_on(Rule::RequestIds) { 0 } else { attempt };
    RequestId(Uuid::from_u128(REQUEST | u128::from(number) << LOW_BITS | u128::from(attempt)))
}

/// Returns the number of a request among all requests of the world, from 1.
pub fn request_number(request: RequestId) -> u32 {
    (request.0.as_u128() as u32) >> LOW_BITS
}

/// Returns the id of the take with this number, which the client of a cell makes.
pub fn take_id(cell: u8, number: u32) -> TakeId {
    TakeId(Uuid::from_u128(TAKE | u128::from(number) << LOW_BITS | u128::from(cell)))
}

/// Returns the key of the lane with this number, an empty text if there is no such lane.
pub fn lane_key(lane: u8) -> &'static str {
    KEYS.get(usize::from(lane)).copied().unwrap_or_default()
}

/// The names that the engine gets from the simulation: the queue, and its lanes by number.
#[derive(Debug)]
pub struct QueueNames {
    /// The queue of the world.
    pub queue: QueuePath,
    lanes: Vec<LanePath>,
    /// The lanes of updates, which are used only if the rule of shared lanes is off.
    apart: Vec<LanePath>,
}

impl QueueNames {
    /// Creates the names of this many lanes, at most [`MAX_LANES`]. Returns `None` if the engine
    /// refuses a name, which tests rule out.
    pub fn new(count: u8) -> Option<Self> {
        let queue = QueuePath::parse("sheets").ok()?;
        let lane = |key: &str| LanePath::parse(queue.clone(), key).ok();
        let lanes = (0..count).map(|number| lane(lane_key(number))).collect::<Option<_>>()?;
        let apart = (0..count).map(|number| lane(&format!("{} updates", lane_key(number))));
        let apart = apart.collect::<Option<_>>()?;
        Some(Self { queue, lanes, apart })
    }

    /// Returns the path of the lane with this number, `None` if there is no such lane.
    pub fn path(&self, lane: u8) -> Option<&LanePath> {
        self.lanes.get(usize::from(lane))
    }

    /// Returns the path of the lane to which a request is submitted.
    pub fn path_for(&self, lane: u8, kind: WorkKind, rules_off: RulesOff) -> Option<&LanePath> {
        let is_apart = kind != WorkKind::Create && !rules_off.is_on(Rule::SharedLane);
        let lanes = if is_apart { &self.apart } else { &self.lanes };
        lanes.get(usize::from(lane))
    }

    /// Returns the number of the resource that a lane is about, `None` if no lane has this path.
    pub fn number(&self, path: &LanePath) -> Option<u8> {
        let position = |lanes: &[LanePath]| lanes.iter().position(|own| own == path);
        position(&self.lanes).or_else(|| position(&self.apart)).map(|at| at as u8)
    }
}
