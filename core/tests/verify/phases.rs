//! Tests of a run's phases: every change of phase that a host can see follows edges of the table,
//! and the runs together follow every edge.

use std::collections::BTreeSet;

use leasehold_core::claim::SourceId;
use leasehold_core::table::VERIFICATION;
use leasehold_core::verify::{Phase, PhaseEvent, Verification, VerifyStep};

use crate::many::moved;
use crate::world::{OTHER_TABLE, OWN, START, TABLE, World, wish};

/// Returns the edges that lead from one phase to another in one call of a host. A call may follow
/// several edges, so the function returns the shortest path. Only a call of `stop` follows an edge
/// of [`PhaseEvent::Stopped`].
///
/// # Panics
/// No edges of the table lead from one phase to the other.
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

/// Drives a run to its end, and stops it after a page if its phase is in `stop_in`. Adds the edges
/// that the run follows to `taken`.
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
        // Between two spans the run follows two edges in one call and is back in the same phase.
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

/// Returns a world for a backfill: pages whose claims are missing, then pages whose claims exist,
/// and one create that is blocked by a row of another table.
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

/// The id of the last row before the second span.
const SECOND_SPAN: u64 = 13_000;

/// Returns a world in which the rows of each half of the table call for the names of the other
/// half. These names are more than a run can defer. The rows of one page call for their own names,
/// so the noted pages before and after it make two spans.
fn two_spans() -> World {
    let half = 15_000;
    let has_own_name = |row| (12_001..=SECOND_SPAN).contains(&(if row > half { row - half } else { row }));
    moved(2 * half, |row| if has_own_name(row) { row } else { (row - 1 + half) % (2 * half) + 1 })
}
