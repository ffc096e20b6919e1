//! Random worlds with faults.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use leasehold_simulation::calm;
use leasehold_simulation::check;
use leasehold_simulation::scheduler::Chance;
use leasehold_simulation::settings::{Clock, Mode, Rates, Settings, Thresholds};
use leasehold_simulation::trace::Trace;
use leasehold_simulation::world::World;

/// How many worlds there are in a test run.
const WORLDS: u64 = 100_000;

/// Worlds of all kinds.
fn settings(seed: u64) -> Settings {
    use Mode::{BeforeCommit, LeaseFirst};
    let pick = |shift: u32, of: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) % of;
    let slow = Clock { ahead_seconds: -90, fast_ppm: -150_000 };
    let fast = Clock { ahead_seconds: 7000, fast_ppm: 150_000 };
    Settings {
        seed,
        cells: 1 + pick(10, 3) as u8,
        workers: 1 + pick(16, 3) as u8,
        reconcilers: 1 + pick(20, 2) as u8,
        names: 1 + pick(24, 4) as u8,
        modes: [vec![BeforeCommit], vec![LeaseFirst], vec![BeforeCommit, LeaseFirst]][pick(28, 3) as usize].clone(),
        clocks: [vec![Clock::default()], vec![slow, fast]][pick(32, 2) as usize].clone(),
        thresholds: Thresholds { replica_lag_seconds: [0, 60][pick(36, 2) as usize], ..Thresholds::default() },
        rates: Rates { drift: [0, 6][pick(40, 2) as usize], ..Rates::default() },
        ..Settings::default()
    }
}

/// Plays a world of chance for some events, then ends all trouble.
fn play(seed: u64, events: u32) {
    let settings = settings(seed);
    let mut chance = Chance::new(&settings);
    let mut world = World::new(settings.clone()).unwrap();
    let mut trace = Trace::new(settings, Vec::new());
    for _ in 0..events {
        trace.events.push(chance.step(&mut world));
    }
    let settled = calm::settle(&mut world);
    trace.events.extend(settled.iter().flatten());
    let found = world.violation().map(ToString::to_string);
    let found = found.or_else(|| settled.err().map(|unrest| unrest.to_string()));
    let found = found.or_else(|| calm::at_rest(&world).err().map(|unrest| unrest.to_string()));
    let found = found.or_else(|| check::everything(&world).err().map(|violation| violation.to_string()));
    if let Some(found) = found {
        let trace = trace.minimise().unwrap_or(trace);
        panic!("seed {seed}: {found}\n{}", trace.to_json().unwrap());
    }
}

#[test]
fn worlds_with_faults_break_nothing_and_come_to_rest() {
    (0..WORLDS).for_each(|seed| play(seed, 60 + (seed % 120) as u32));
}
