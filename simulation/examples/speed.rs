//! How many steps a second the simulation makes, with everything checked after each.

use std::time::Instant;
use leasehold_simulation::scheduler::Chance;
use leasehold_simulation::settings::{Rates, Settings};
use leasehold_simulation::world::World;

fn main() {
    let started = Instant::now();
    let mut steps = 0_u64;
    for seed in 0..2000 {
        let settings = Settings { seed, rates: Rates { drift: 6, ..Rates::default() }, ..Settings::default() };
        let mut chance = Chance::new(&settings);
        let mut world = World::new(settings).unwrap();
        for _ in 0..1000 {
            chance.step(&mut world);
            steps += 1;
            if let Some(v) = world.violation() { println!("seed {seed} step {}: {v}", world.events()); break; }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{steps} steps, {:.0} steps/s", steps as f64 / seconds);
}
