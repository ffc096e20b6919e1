//! The phases of runs: every change that a host can see is a way along edges of the table, and
//! together the runs take all edges.

use std::collections::BTreeSet;

use leasehold_core::claim::SourceId;
use leasehold_core::table::VERIFICATION;
use leasehold_core::verify::{Phase, PhaseEvent, Verification, VerifyStep};

use crate::many::moved;
use crate::world::{OTHER_TABLE, OWN, START, TABLE, World, wish};

/// The edges of one call's change of phase. One call can take several, so this is the shortest way;
/// only a call of `stop` takes the edges of [`PhaseEvent::Stopped`].
///
/// # Panics
/// No way leads along edges of the table.
pub(crate) fn edges(from: Phase, to: Phase, is_stopped: bool) -> Vec<(Phase, PhaseEvent)> {
    let mut ways = vec![(from, Vec::new())];
    for _ in 0..VERIFICATION.len() {
        if let Some((_, way)) = ways.iter().find(|(at, way)| *at == to && (!is_stopped || !way.is_empty())) {
            return way.clone();
        }
        let mut longer = Vec::new();
        for (at, way) in &ways {
            let is_open = |event| (event == PhaseEvent::Stopped) == (is_stopped && way.is_empty());
            for edge in VERIFICATION.iter().filter(|edge| edge.from == *at && is_open(edge.event)) {
                longer.push((edge.to, [way.as_slice(), &[(edge.from, edge.event)]].concat()));
            }
        }
        ways = longer;
    }
    panic!("no edges lead from {from:?} to {to:?}");
}

/// Drives a run to its end, and stops it after a page in one of these phases. Adds the edges that
/// it takes.
fn drive(world: &mut World, mut run: Verification, stop_in: &[Phase], taken: &mut BTreeSet<(Phase, PhaseEvent)>) {
    let settings = world.settings();
    loop {
        let from = run.phase();
        let is_stopped = *run.step() == VerifyStep::PageDone && stop_in.contains(&from);
        if is_stopped {
            run.stop().unwrap();
        } else if !world.take(&mut run, &settings) {
            assert_eq!(run.phase(), Phase::Done);
            return;
        }
        taken.extend(edges(from, run.phase(), is_stopped));
        // Between two spans the run passes through another phase and is back in one call.
        let span = SourceId::from(SECOND_SPAN);
        let is_in_span = matches!(run.step(), VerifyStep::FindBound { after, .. } if *after == span);
        if run.phase() == Phase::Rescan && is_in_span {
            taken.extend([(Phase::Rescan, PhaseEvent::LastPage), (Phase::LastTry, PhaseEvent::SpanLeft)]);
        }
    }
}

fn new_run(world: &World) -> Verification {
    Verification::new(world.settings(), world.catalogue().clone(), None)
}

/// Pages of missing claims, then one of claims that are as they should be, and a create that
/// another table's row blocks.
fn backfill() -> World {
    let mut world = World { rows_per_page: 10, ..World::new() };
    (1..=20).for_each(|row| world.row(row, &[wish(4, &format!("name{row}"), 1)]));
    (21..=40).for_each(|row| {
        let name = wish(4, &format!("name{row}"), 1);
        world.row(row, std::slice::from_ref(&name));
        world.claim(OWN, TABLE, row, &name);
    });
    world.row(41, &[wish(4, "blocked", 1)]);
    world.claim(OWN, OTHER_TABLE, 1, &wish(4, "blocked", 1));
    world.now = START;
    world
}

#[test]
fn v05_v07_v08_runs_take_every_edge_of_the_verification_table() {
    let mut taken = BTreeSet::new();
    for stop_in in [&[][..], &[Phase::Scan], &[Phase::Fill]] {
        let mut world = backfill();
        let run = new_run(&world);
        drive(&mut world, run, stop_in, &mut taken);
    }
    let mut at_rest = World::new();
    let run = new_run(&at_rest);
    drive(&mut at_rest, run, &[], &mut taken);
    let spans = two_spans();
    for stop_in in [&[][..], &[Phase::Rescan], &[Phase::Refill]] {
        let mut world = spans.clone();
        let run = new_run(&world);
        drive(&mut world, run, stop_in, &mut taken);
    }
    assert_eq!(taken, VERIFICATION.iter().map(|edge| (edge.from, edge.event)).collect());
}

/// The last row before the second span.
const SECOND_SPAN: u64 = 13_000;

/// Halves of a table that call for each other's names, which are more than are deferred. One page
/// has its own names, so the noted pages before and after it are two spans.
fn two_spans() -> World {
    let half = 15_000;
    let has_own_name = |row| (12_001..=SECOND_SPAN).contains(&(if row > half { row - half } else { row }));
    moved(2 * half, |row| if has_own_name(row) { row } else { (row - 1 + half) % (2 * half) + 1 })
}
