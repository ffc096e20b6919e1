//! Measures the number of events per second that the simulation plays on one core. Each event's
//! changes are checked, as in tests.
//!
//! ```sh
//! cargo run --release -p leasehold-simulation --example speed [EVENTS]
//! ```
//!
//! The last line is one JSON object, for `cargo xtask bench`.

use std::time::Instant;

use leasehold_simulation::scheduler::RandomScheduler;
use leasehold_simulation::settings::{InvalidSettings, Mode, Rates, WorldSettings};
use leasehold_simulation::world::World;

/// The number of events of one world, about that of a long trace.
const EVENTS_A_WORLD: u64 = 10_000;

fn settings(seed: u64) -> WorldSettings {
    let modes = vec![Mode::BeforeCommit, Mode::LeaseFirst];
    WorldSettings { seed, modes, rates: Rates { drift: 6, ..Rates::default() }, ..WorldSettings::default() }
}

fn main() -> Result<(), InvalidSettings> {
    let events: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5_000_000);
    let started = Instant::now();
    let (mut saves, mut leases, mut violations) = (0, 0, 0);
    for seed in 0..events.div_ceil(EVENTS_A_WORLD) {
        let mut scheduler = RandomScheduler::new(&settings(seed));
        let mut world = World::new(settings(seed))?;
        (0..EVENTS_A_WORLD).for_each(|_| _ = scheduler.step(&mut world));
        saves += u64::from(world.saves());
        leases += u64::from(world.ground_truth().len());
        violations += u64::from(world.violation().is_some());
    }
    let events = events.div_ceil(EVENTS_A_WORLD) * EVENTS_A_WORLD;
    let rate = u128::from(events) * 1_000_000 / started.elapsed().as_micros().max(1);
    println!("{events} events, {saves} saves, {leases} leases, {violations} violations");
    println!(r#"{{"events_per_second":{rate}}}"#);
    Ok(())
}
