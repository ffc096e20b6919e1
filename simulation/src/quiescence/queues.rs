//! The end of all faults in the world of a queue: workers serve until every request is settled.

use super::NotQuiescent;
use crate::event::Event;
use crate::world::World;

/// Returns the event that an idle client begins to serve, if requests wait and no worker does. A client
/// of a service that is down would try for ever, so none begins before the service runs.
pub(super) fn serve(world: &World) -> Option<Event> {
    let has_waiting = world.service().requests().iter().any(|(_, request)| request.is_new());
    let cells = || 1..=world.settings().cells;
    let awaits = |cell| world.client(cell).is_some_and(|client| client.awaits_batch());
    if !world.is_service_awake() || !has_waiting || cells().any(awaits) {
        return None;
    }
    let can_serve = |cell: &u8| {
        let is_connected = world.cell(*cell).is_some_and(|cell| !cell.is_cut_off);
        is_connected && world.client(*cell).is_some_and(|client| !client.is_paused)
    };
    let mut events = cells().filter(can_serve).map(|cell| Event::Serve { cell });
    events.find(|event| world.is_possible(*event))
}

/// Returns true if requests are left that are not settled.
pub(super) fn has_open_requests(world: &World) -> bool {
    world.service().requests().iter().any(|(_, request)| !request.is_settled())
}

/// Checks that every request is settled.
pub(super) fn check(world: &World) -> Result<(), NotQuiescent> {
    match has_open_requests(world) {
        true => Err(NotQuiescent::Remaining { what: "requests that are not settled", cell: 0 }),
        false => Ok(()),
    }
}
