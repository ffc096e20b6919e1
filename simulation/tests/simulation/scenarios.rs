//! The test that every scenario reaches its declared final state without a violation.

use leasehold_core::claim::ClaimState;
use leasehold_core::queue::RequestState;
use leasehold_simulation::check;
use leasehold_simulation::names::row_id;
use leasehold_simulation::queue_names::request_number;
use leasehold_simulation::scenarios::{End, Scenario, all};
use leasehold_simulation::world::World;

/// Returns the final state of a world in the form in which a scenario declares it. `told` has the
/// workers that the scenario lists.
fn end_of(world: &World, scenario: &Scenario) -> End {
    let state = world.service().state();
    let claims = state.claims.iter().filter_map(|(key, claim)| match &claim.state {
        ClaimState::Active(record) => {
            Some((world.names().name(key).unwrap(), claim.owner.0 as u8, row_id(&record.source.id).unwrap()))
        }
        _ => None,
    });
    let cells = || (1_u8..).zip(world.cells());
    let told = scenario.end.told.iter().map(|(cell, worker, _)| {
        let worker_of = world.cell(*cell).unwrap().workers.get(usize::from(*worker)).unwrap();
        (*cell, *worker, worker_of.last_result.unwrap())
    });
    let resources = world.locks().map_or(&[][..], |locks| locks.resources.all());
    End {
        claims: list(claims),
        rows: list(cells().flat_map(|(cell, at)| at.database.rows().iter().map(move |row| (cell, row.id, row.name)))),
        told: list(told),
        outstanding: state.leases.values().filter(|lease| lease.outcome().is_none()).count() as u32,
        lease_rows: cells().map(|(_, cell)| cell.database.lease_rows().len() as u32).sum(),
        worked: list(cells().filter_map(|(cell, at)| Some((cell, at.client.as_ref()?.last_result?)))),
        requests: list(state.requests.iter().map(|(id, row)| (request_number(*id), word(row.state)))),
        writes: list((0..).zip(resources).map(|(lock, resource)| (lock, resource.writes, resource.refused))),
    }
}

/// Returns a list in the form of a constant. Its memory stays allocated until the test ends.
fn list<T>(items: impl Iterator<Item = T>) -> &'static [T] {
    items.collect::<Vec<_>>().leak()
}

fn word(state: RequestState) -> &'static str {
    match state {
        RequestState::New => "New",
        RequestState::InProgress => "InProgress",
        RequestState::Complete => "Complete",
        RequestState::Error => "Error",
    }
}

#[test]
fn every_scenario_reaches_its_declared_end() {
    for scenario in all().unwrap() {
        let world = scenario.trace.replay().unwrap();
        assert_eq!(end_of(&world, &scenario), scenario.end, "{}", scenario.title);
        assert_eq!(world.violation(), None, "{}", scenario.title);
        check::everything(&world).unwrap();
        assert_eq!(world.network().messages(), [], "{}", scenario.title);
    }
}
