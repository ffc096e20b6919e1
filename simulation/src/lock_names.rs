//! The names of locks, and the ids of sessions and asks.

use leasehold_core::lock::{AskId, LockPath};
use leasehold_core::session::{Principal, SessionId};
use uuid::Uuid;

const KEYS: [&str; 4] = ["backup", "report", "import", "billing"];

/// The id of session number 0. The cell and the number of the session are in the last 32 bits.
const SESSION: u128 = 0x01a2_0000_0000_7000_8001_0000_0000_0000;
/// The id of ask number 0. The cell and the number of the ask are in the last 32 bits.
const ASK: u128 = 0x01a2_0000_0000_7000_8002_0000_0000_0000;
/// The number of bits that the number of a cell takes in an id.
const CELL_BITS: u32 = 4;

fn id(kind: u128, cell: u8, number: u32) -> Uuid {
    Uuid::from_u128(kind | u128::from(number) << CELL_BITS | u128::from(cell))
}

/// Returns the id of the session with this number, which the client of a cell opens.
pub fn session_id(cell: u8, number: u32) -> SessionId {
    SessionId(id(SESSION, cell, number))
}

/// Returns the number of the cell whose client opened a session.
pub fn cell_of(session: SessionId) -> u8 {
    (session.0.as_u128() & ((1 << CELL_BITS) - 1)) as u8
}

/// Returns the number of a session among the sessions of its client, from 1.
pub fn session_number(session: SessionId) -> u32 {
    (session.0.as_u128() as u32) >> CELL_BITS
}

/// Returns the id of the ask with this number, which the client of a cell makes.
pub fn ask_id(cell: u8, number: u32) -> AskId {
    AskId(id(ASK, cell, number))
}

/// Returns the key of the lock with this number, an empty text if there is no such lock.
pub fn lock_key(lock: u8) -> &'static str {
    KEYS.get(usize::from(lock)).copied().unwrap_or_default()
}

/// The names that the engine gets from the simulation: the locks by number, and the one principal.
#[derive(Debug)]
pub struct LockNames {
    paths: Vec<LockPath>,
    /// The principal of every client.
    pub principal: Principal,
}

impl LockNames {
    /// Creates the names of as many locks as `count` says. Returns `None` if the engine refuses one
    /// of the names, which no name here gives it a reason for.
    pub fn new(count: u8) -> Option<Self> {
        let path = |number| LockPath::parse(&["job"], lock_key(number)).ok();
        let paths = (0..count).map(path).collect::<Option<_>>()?;
        Some(Self { paths, principal: Principal::parse("service/worker").ok()? })
    }

    /// Returns the paths of all locks, in the order of their numbers.
    pub fn paths(&self) -> &[LockPath] {
        &self.paths
    }

    /// Returns the path of the lock with this number, `None` if there is no such lock.
    pub fn path(&self, lock: u8) -> Option<&LockPath> {
        self.paths.get(usize::from(lock))
    }

    /// Returns the number of the lock with this path, `None` if no lock has it.
    pub fn number(&self, path: &LockPath) -> Option<u8> {
        self.paths.iter().position(|own| own == path).map(|at| at as u8)
    }
}
