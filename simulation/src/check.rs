//! What must hold after every event: the engine's own invariants, and those that span the databases. Only what the
//! event has touched is looked at; [`everything`] looks at all, and tests hold the two to each other.
//!
//! A rule that is switched off is not itself looked at: what is looked at is what it is there for. So without lease
//! exclusivity two leases may list one claim, until two cells own one name.

use leasehold_core::claim::{CellId, Claim, ClaimState, Record};
use leasehold_core::invariant;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::reconcile::Settled;
use serde::{Serialize, Serializer};

use crate::database::{Row, find, micros};
use crate::ghost::Ghost;
use crate::names::{TABLE, row_of};
use crate::settings::Rule;
use crate::touched::Answered;
use crate::words::settled_words;
use crate::world::World;

/// What does not hold, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// A promise that the engine makes of its own state.
    #[error("in the service {0}")]
    Engine(#[serde(serialize_with = "as_text")] invariant::Violation),
    /// Committed rows of two cells have one name.
    #[error("`{name}` belongs to rows of cell {} and cell {}", cells[0], cells[1])]
    OwnedTwice {
        /// The name.
        name: String,
        /// The cells.
        cells: [u8; 2],
    },
    /// A committed row has no claim, and none is on its way.
    #[error("row {row} of cell {cell} is committed as `{name}`, and nothing claims that for it")]
    Unclaimed {
        /// The cell.
        cell: u8,
        /// The row.
        row: u32,
        /// Its name.
        name: String,
    },
    /// Verification corrects a name's claim against a row that nobody has changed past the claims: gives up a claim that
    /// the row calls for, or makes one that it does not.
    #[error("verification corrects the claim of `{name}` against row {row} of cell {cell}")]
    Miscorrected {
        /// The cell.
        cell: u8,
        /// The row.
        row: u32,
        /// The name.
        name: String,
    },
    /// A lease was committed, and its local transaction was not.
    #[error("lease {lease} is committed, and its local transaction is not")]
    CommittedWithoutRows {
        /// The lease.
        lease: LeaseId,
    },
    /// A lease was rolled back, and its local transaction was committed.
    #[error("lease {lease} was rolled back, and its local transaction is committed")]
    RolledBackUnderRows {
        /// The lease.
        lease: LeaseId,
    },
    /// Who asked what had become of a lease was not told the truth.
    #[error("lease {lease} {}, and its cell was told: {}", ending(*ended), settled_words(*told))]
    ToldWrongly {
        /// The lease.
        lease: LeaseId,
        /// How it had ended, if it had.
        #[serde(skip_serializing_if = "Option::is_none")]
        ended: Option<Outcome>,
        /// What the service said.
        told: Settled,
    },
    /// A save was refused because of a lease that its own first try had begun.
    #[error("a save is refused because of the lease that its own first try has begun")]
    OwnObstacle,
}

fn ending(ended: Option<Outcome>) -> &'static str {
    match ended {
        None => "is not settled",
        Some(Outcome::Committed) => "was committed",
        Some(Outcome::RolledBack) => "was rolled back",
    }
}

fn as_text<S: Serializer>(violation: &invariant::Violation, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(violation)
}

/// Checks what the last event has touched.
///
/// # Errors
/// The first violation found.
pub fn touched(world: &World) -> Result<(), Violation> {
    let touched = world.touched();
    if touched.is_own_obstacle {
        return Err(Violation::OwnObstacle);
    }
    touched.answered.iter().try_for_each(|answered| answer(world, answered))?;
    touched.names.iter().try_for_each(|name| bucket(world, *name))?;
    for lease in &touched.leases {
        settled_lease(world, *lease)?;
        engine_lease(world, *lease)?;
    }
    Ok(())
}

/// Checks everything there is.
///
/// # Errors
/// The first violation found.
pub fn everything(world: &World) -> Result<(), Violation> {
    if world.settings().rules_off.keep(Rule::LeaseExclusivity) {
        invariant::check(&world.service().state()).map_err(Violation::Engine)?;
    }
    (0..world.names().len()).try_for_each(|name| bucket(world, name))?;
    (1..=world.ghosts().len()).try_for_each(|number| settled_lease(world, crate::names::lease_id(number)))
}

/// Whose a name is, and whether it is claimed for its row.
fn bucket(world: &World, name: u8) -> Result<(), Violation> {
    let Some(key) = world.names().key(name) else { return Ok(()) };
    let claim = world.service().claim(key);
    if let Some(claim) = claim {
        invariant::lone_claim(key, claim).map_err(Violation::Engine)?;
        if world.settings().rules_off.keep(Rule::LeaseExclusivity) {
            let lease = claim.hold().and_then(|hold| world.service().lease(hold.lease));
            invariant::held_claim(key, claim, lease).map_err(Violation::Engine)?;
        }
    }
    let mut owner = None;
    for (cell, database) in (1..).zip(world.databases()) {
        let Some(row) = database.row_named(name).filter(|row| !row.is_stray) else { continue };
        if let Some(first) = owner.replace(cell) {
            let name = world.names().spelling(name).to_owned();
            return Err(Violation::OwnedTwice { name, cells: [first, cell] });
        }
        if !claim.is_some_and(|claim| covers(world, claim, cell, row)) {
            let (row, name) = (row.id, world.names().spelling(name).to_owned());
            let is_correction = claim.and_then(|claim| world.ghosts().correction(claim)).is_some();
            return Err(match is_correction {
                true => Violation::Miscorrected { cell, row, name },
                false => Violation::Unclaimed { cell, row, name },
            });
        }
    }
    claim.map_or(Ok(()), |claim| called_for(world, name, claim))
}

/// What a correction takes is called for by its row from when the lease's row is written until the lease is committed.
fn called_for(world: &World, name: u8, claim: &Claim) -> Result<(), Violation> {
    let ghost = world.ghosts().correction(claim).filter(|ghost| !ghost.is_overtaken);
    let (Some(&Ghost { cell, .. }), Some(row)) = (ghost, world.ghosts().promised(claim)) else { return Ok(()) };
    let is_called_for =
        world.cell(cell).and_then(|at| find(at.database.rows(), row)).is_some_and(|row| row.name == name);
    if is_called_for {
        return Ok(());
    }
    Err(Violation::Miscorrected { cell, row, name: world.names().spelling(name).to_owned() })
}

/// Whether a claim is the row's, once its lease is settled as its local transaction has ended by now. A correction by
/// verification is not to touch it at all before its lease's row is written: its cell's users would be told to wait.
fn covers(world: &World, claim: &Claim, cell: u8, row: &Row) -> bool {
    let comes_from = |record: &Record| record.source.source_type == TABLE && row_of(&record.source.id) == Some(row.id);
    let is_committed = claim.hold().and_then(|hold| world.ghosts().lease(hold.lease)).is_some_and(|it| it.is_committed);
    let is_correction = world.ghosts().correction(claim).is_some();
    claim.owner == CellId(cell.into())
        && match &claim.state {
            ClaimState::Active(record) => comes_from(record),
            ClaimState::Creating(_, record) => is_committed && comes_from(record),
            ClaimState::Destroying(_, record) => !is_committed && !is_correction && comes_from(record),
            ClaimState::Replacing(_, both) if is_committed => comes_from(&both.new),
            ClaimState::Replacing(_, both) => comes_from(&both.old) && (!is_correction || comes_from(&both.new)),
        }
}

/// A settled lease and its local transaction have ended alike.
fn settled_lease(world: &World, lease: LeaseId) -> Result<(), Violation> {
    let Some(ghost) = world.ghosts().lease(lease) else { return Ok(()) };
    match ghost.settled {
        Some((Outcome::Committed, _)) if !ghost.is_committed => Err(Violation::CommittedWithoutRows { lease }),
        Some((Outcome::RolledBack, _)) if ghost.is_committed => Err(Violation::RolledBackUnderRows { lease }),
        _ => Ok(()),
    }
}

/// The engine's own invariants of one lease.
fn engine_lease(world: &World, id: LeaseId) -> Result<(), Violation> {
    let service = world.service();
    let Some(lease) = service.lease(id) else { return Ok(()) };
    invariant::lone_lease(lease).map_err(Violation::Engine)?;
    if world.settings().rules_off.keep(Rule::LeaseExclusivity) {
        invariant::lease_holds(id, lease, |key| service.claim(key)).map_err(Violation::Engine)?;
    }
    let used = lease.idempotency_key.as_ref().and_then(|key| Some((key, service.replay(key)?)));
    used.map_or(Ok(()), |(key, used)| invariant::replay(key, used, Some(lease)).map_err(Violation::Engine))
}

/// A settle was answered truly, for as long as settled leases are to be remembered.
fn answer(world: &World, answered: &Answered) -> Result<(), Violation> {
    let Answered { lease, wanted, told } = *answered;
    let Some(ghost) = world.ghosts().lease(lease) else { return Ok(()) };
    let remember = micros(world.settings().thresholds.remember_within_seconds);
    let is_true = match (told, ghost.settled) {
        (Settled::Done, Some((outcome, _))) => outcome == wanted,
        (Settled::RolledBack, Some((outcome, _))) => outcome == Outcome::RolledBack,
        (Settled::Committed, Some((outcome, _))) => outcome == Outcome::Committed,
        (Settled::NotFound, Some((_, at))) => world.service_now().micros_since(at) > remember,
        (_, None) => false,
    };
    let ended = ghost.settled.map(|(outcome, _)| outcome);
    if is_true { Ok(()) } else { Err(Violation::ToldWrongly { lease, ended, told }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Change, Drift, Event};
    use crate::names::lease_id;
    use crate::script::Script;
    use crate::settings::Settings;
    use crate::touched::Answered;
    use crate::worker::Phase;
    use crate::world::Tampering;

    /// A world in which cell 1 has saved two rows and is about to commit the lease of another, and cell 2 has begun a
    /// lease.
    fn world() -> World {
        let mut script = Script::new(Settings { names: 4, ..Settings::default() }).unwrap();
        script.save(1, 0, Change::Create(0)).save(1, 0, Change::Create(2));
        script.ask(1, 0, Change::Create(1)).until(1, 0, Phase::CommitLease);
        script.ask(2, 0, Change::Create(3)).until(2, 0, Phase::WriteLease);
        assert_eq!(everything(script.world()), Ok(()));
        script.world().clone()
    }

    /// What either check says of a world after somebody has tampered with it.
    fn after(tampering: Tampering) -> (Result<(), Violation>, Result<(), Violation>) {
        let mut world = world();
        world.tamper(tampering);
        (touched(&world), everything(&world))
    }

    /// A world in which a row's name is corrected under the lease whose row was just written.
    fn correction() -> World {
        let mut script = Script::new(Settings::default()).unwrap();
        script.event(Event::Drift { cell: 1, drift: Drift::Insert(0) }).wait(3700);
        script.until_step(1, "commit");
        assert_eq!(everything(script.world()), Ok(()));
        script.world().clone()
    }

    #[test]
    fn a_correction_that_its_row_does_not_call_for_is_found() {
        let mut world = correction();
        world.tamper(Tampering::DropRow(1, 1));
        for found in [touched(&world), everything(&world)] {
            assert!(matches!(found, Err(Violation::Miscorrected { cell: 1, row: 1, .. })), "{found:?}");
        }
    }

    #[test]
    fn a_correction_that_ended_otherwise_than_its_row_says_is_found() {
        for (tampering, is_committed) in [
            (Tampering::Settle(lease_id(1), Outcome::RolledBack), true),
            (Tampering::Settle(lease_id(1), Outcome::Committed), false),
        ] {
            let mut world = correction();
            (!is_committed).then(|| world.tamper(Tampering::Uncommit(lease_id(1))));
            world.tamper(tampering);
            let expected = match is_committed {
                true => Violation::RolledBackUnderRows { lease: lease_id(1) },
                false => Violation::CommittedWithoutRows { lease: lease_id(1) },
            };
            assert_eq!(touched(&world), Err(expected));
        }
    }

    fn both_find(tampering: Tampering, is_expected: fn(&Violation) -> bool) {
        let (incremental, full) = after(tampering);
        for found in [incremental, full] {
            let found = found.expect_err("it is violated");
            assert!(is_expected(&found), "{found}");
        }
    }

    #[test]
    fn a_row_without_its_claim_is_found() {
        both_find(Tampering::DropClaim(0), |found| matches!(found, Violation::Unclaimed { cell: 1, row: 1, .. }));
    }

    #[test]
    fn a_claim_of_another_cell_or_row_is_no_claim() {
        both_find(Tampering::GiveClaim(0, 2), |found| matches!(found, Violation::Unclaimed { cell: 1, row: 1, .. }));
        both_find(Tampering::CopyClaim(0, 2), |found| matches!(found, Violation::Unclaimed { row: 2, .. }));
    }

    #[test]
    fn a_name_of_two_cells_is_found() {
        both_find(Tampering::AddRow(2, 0), |found| matches!(found, Violation::OwnedTwice { cells: [1, 2], .. }));
    }

    #[test]
    fn a_lease_that_ended_otherwise_than_its_transaction_is_found() {
        let rolled_back = Tampering::Settle(lease_id(1), Outcome::RolledBack);
        both_find(rolled_back, |found| matches!(found, Violation::RolledBackUnderRows { .. }));
        let uncommitted = Tampering::Uncommit(lease_id(1));
        both_find(uncommitted, |found| matches!(found, Violation::CommittedWithoutRows { .. }));
    }

    #[test]
    fn what_the_engine_promises_of_itself_is_looked_at() {
        both_find(Tampering::DropLease(lease_id(3)), |found| matches!(found, Violation::Engine(_)));
        both_find(Tampering::DropClaim(3), |found| matches!(found, Violation::Engine(_)));
        both_find(Tampering::RenumberReplays, |found| matches!(found, Violation::Engine(_)));
    }

    #[test]
    fn an_untrue_answer_is_found() {
        let told = |told, wanted| {
            after(Tampering::Answer(Answered { lease: lease_id(1), wanted, told })).0.map_err(|found| found.to_string())
        };
        assert_eq!(told(Settled::Done, Outcome::Committed), Ok(()));
        for (answer, wanted, words) in [
            (Settled::Done, Outcome::RolledBack, "was committed, and its cell was told: done"),
            (Settled::RolledBack, Outcome::Committed, "was committed, and its cell was told: it was rolled back"),
            (Settled::NotFound, Outcome::Committed, "was committed, and its cell was told: no such lease"),
        ] {
            assert_eq!(told(answer, wanted), Err(format!("lease {} {words}", lease_id(1))));
        }
        assert_eq!(told(Settled::Committed, Outcome::RolledBack), Ok(()));
    }
}
