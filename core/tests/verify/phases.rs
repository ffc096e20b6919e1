//! The phases of runs: every change that a host can see is a way along edges of the table.

use leasehold_core::table::VERIFICATION;
use leasehold_core::verify::{Phase, PhaseEvent};

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
