//! The conditions that must hold after every event: the engine's own invariants, and conditions
//! that span the databases. [`after_event`] checks only what the event changed; [`everything`]
//! checks the whole world. Tests verify that both agree.
//!
//! A row that plain SQL has written needs no claim at first. Once a correction for the row has
//! written its lease row, the row must have a claim, because the correction's lease will be
//! committed. If plain SQL changes rows of the cell during a correction, the checks do not compare
//! the correction's claim with its row, because such changes respect no lease.
//!
//! If a rule is switched off, the checks test the purpose of the rule and not the rule. For
//! example, without lease exclusivity two leases may list one claim, and only a name that belongs
//! to two cells is a violation.

mod locks;
mod queues;

use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, ClaimState, Record};
use leasehold_core::invariant;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::reconcile::Settled;

use crate::database::{Row, micros, row_by_id};
use crate::effects::SettleAnswer;
use crate::event::Event;
use crate::ground_truth::LeaseTruth;
use crate::names::{TABLE, row_id};
use crate::settings::Rule;
use crate::violation::Violation;
use crate::world::{ImpossibleEvent, World};

impl World {
    /// Performs an event, then checks everything that the event changed. The world keeps the first
    /// violation only.
    ///
    /// # Errors
    /// The event is impossible in the present state. The world is unchanged.
    pub fn apply(&mut self, event: Event) -> Result<(), ImpossibleEvent> {
        self.perform(event)?;
        if self.violation().is_none()
            && let Err(violation) = after_event(self)
        {
            self.set_violation(violation);
        }
        Ok(())
    }
}

/// Checks the changes made by the last event.
///
/// # Errors
/// The first violation found.
pub fn after_event(world: &World) -> Result<(), Violation> {
    let effects = world.effects();
    if world.locks().is_some() {
        locks::after_event(world)?;
        return queues::after_event(world);
    }
    if effects.blocked_by_own_lease {
        return Err(Violation::OwnObstacle);
    }
    effects.settle_answer.iter().try_for_each(|settle_answer| check_settle_answer(world, settle_answer))?;
    effects.names.iter().try_for_each(|name| check_name(world, *name))?;
    for lease in &effects.leases {
        check_settled_lease(world, *lease)?;
        check_engine_lease(world, *lease)?;
    }
    Ok(())
}

/// Checks the whole world.
///
/// # Errors
/// The first violation found.
pub fn everything(world: &World) -> Result<(), Violation> {
    if world.settings().rules_off.is_on(Rule::LeaseExclusivity) {
        invariant::check(&world.service().state()).map_err(Violation::Engine)?;
    }
    locks::check_holders(world)?;
    queues::check_workers(world)?;
    (0..world.names().len()).try_for_each(|name| check_name(world, name))?;
    (1..=world.ground_truth().len()).try_for_each(|number| check_settled_lease(world, crate::names::lease_id(number)))
}

/// Checks that at most one cell has a row with the name, and that the name is claimed for this row.
fn check_name(world: &World, name: u8) -> Result<(), Violation> {
    let Some(key) = world.names().key(name) else { return Ok(()) };
    let claim = world.service().claim(key);
    if let Some(claim) = claim {
        invariant::check_claim(key, claim).map_err(Violation::Engine)?;
        if world.settings().rules_off.is_on(Rule::LeaseExclusivity) {
            let lease = claim.hold().and_then(|hold| world.service().lease(hold.lease));
            invariant::check_hold(key, claim, lease).map_err(Violation::Engine)?;
        }
    }
    let mut owner = None;
    for (cell, database) in (1..).zip(world.databases()) {
        let Some(row) = database.row_by_name(name).filter(|row| !row.is_stray) else { continue };
        if let Some(first) = owner.replace(cell) {
            let name = world.names().spelling(name).to_owned();
            return Err(Violation::OwnedTwice { name, cells: [first, cell] });
        }
        if !claim.is_some_and(|claim| covers(world, claim, cell, row)) {
            let (row, name) = (row.id, world.names().spelling(name).to_owned());
            let is_correction = claim.and_then(|claim| world.ground_truth().correction(claim)).is_some();
            return Err(match is_correction {
                true => Violation::Miscorrected { cell, row, name },
                false => Violation::Unclaimed { cell, row, name },
            });
        }
    }
    claim.map_or(Ok(()), |claim| check_correction(world, name, claim))
}

/// Checks that the claim of a correction matches the correction's row, from the write of the lease
/// row until the commit of the lease.
fn check_correction(world: &World, name: u8, claim: &Claim) -> Result<(), Violation> {
    let truth = world.ground_truth().correction(claim).filter(|truth| !truth.is_overtaken);
    let (Some(&LeaseTruth { cell, .. }), Some(row)) = (truth, world.ground_truth().promised(claim)) else {
        return Ok(());
    };
    let is_called_for =
        world.cell(cell).and_then(|at| row_by_id(at.database.rows(), row)).is_some_and(|row| row.name == name);
    if is_called_for {
        return Ok(());
    }
    Err(Violation::Miscorrected { cell, row, name: world.names().spelling(name).to_owned() })
}

/// Returns true if the claim comes from the row after its lease is settled. The lease's outcome is
/// that of its local transaction. A correction without a lease row must not hold the row's claim,
/// because the cell's users would find the name busy.
fn covers(world: &World, claim: &Claim, cell: u8, row: &Row) -> bool {
    let comes_from = |record: &Record| record.source.source_type == TABLE && row_id(&record.source.id) == Some(row.id);
    let is_committed =
        claim.hold().and_then(|hold| world.ground_truth().lease(hold.lease)).is_some_and(|it| it.is_committed);
    let is_correction = world.ground_truth().correction(claim).is_some();
    claim.owner == CellId(cell.into())
        && match &claim.state {
            ClaimState::Active(record) => comes_from(record),
            ClaimState::Creating(_, record) => is_committed && comes_from(record),
            ClaimState::Destroying(_, record) => !is_committed && !is_correction && comes_from(record),
            ClaimState::Replacing(_, both) if is_committed => comes_from(&both.new),
            ClaimState::Replacing(_, both) => comes_from(&both.old) && (!is_correction || comes_from(&both.new)),
        }
}

/// Checks that a settled lease and its local transaction have the same outcome.
fn check_settled_lease(world: &World, lease: LeaseId) -> Result<(), Violation> {
    let Some(truth) = world.ground_truth().lease(lease) else { return Ok(()) };
    match truth.settled {
        Some((Outcome::Committed, _)) if !truth.is_committed => Err(Violation::CommittedWithoutRows { lease }),
        Some((Outcome::RolledBack, _)) if truth.is_committed => Err(Violation::RolledBackUnderRows { lease }),
        _ => Ok(()),
    }
}

/// Checks the engine's own invariants of one lease and of its idempotency key.
fn check_engine_lease(world: &World, id: LeaseId) -> Result<(), Violation> {
    let service = world.service();
    let Some(lease) = service.lease(id) else { return Ok(()) };
    invariant::check_lease(lease).map_err(Violation::Engine)?;
    if world.settings().rules_off.is_on(Rule::LeaseExclusivity) {
        invariant::check_listed_claims(id, lease, |key| service.claim(key)).map_err(Violation::Engine)?;
    }
    let used = lease.idempotency_key.as_ref().and_then(|key| Some((key, service.replay(key)?)));
    used.map_or(Ok(()), |(key, used)| invariant::check_replay(key, used, Some(lease)).map_err(Violation::Engine))
}

/// Checks that the service's answer to a commit or rollback is true. A lease may be unknown once it
/// was settled longer ago than `remember_within_seconds`.
fn check_settle_answer(world: &World, settle_answer: &SettleAnswer) -> Result<(), Violation> {
    let SettleAnswer { lease, requested, answer } = *settle_answer;
    let Some(truth) = world.ground_truth().lease(lease) else { return Ok(()) };
    let remember = micros(world.settings().thresholds.remember_within_seconds);
    let is_true = match (answer, truth.settled) {
        (Settled::Done, Some((outcome, _))) => outcome == requested,
        (Settled::RolledBack, Some((outcome, _))) => outcome == Outcome::RolledBack,
        (Settled::Committed, Some((outcome, _))) => outcome == Outcome::Committed,
        (Settled::NotFound, Some((_, at))) => world.service_now().micros_since(at) > remember,
        (_, None) => false,
    };
    let ended = truth.settled.map(|(outcome, _)| outcome);
    if is_true { Ok(()) } else { Err(Violation::ToldWrongly { lease, ended, told: answer }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Change, Drift};
    use crate::names::lease_id;
    use crate::script::Script;
    use crate::settings::WorldSettings;
    use crate::worker::Phase;
    use crate::world::Tampering;

    /// Returns a world with outstanding work. Cell 1 has saved two rows and is about to commit the
    /// lease of a third; cell 2 has begun a lease.
    fn world() -> World {
        let mut script = Script::new(WorldSettings { names: 4, ..WorldSettings::default() }).unwrap();
        script.save(1, 0, Change::Create(0)).save(1, 0, Change::Create(2));
        script.request_save(1, 0, Change::Create(1)).run_worker_until(1, 0, Phase::CommitLease);
        script.request_save(2, 0, Change::Create(3)).run_worker_until(2, 0, Phase::WriteLease);
        assert_eq!(everything(script.world()), Ok(()));
        script.world().clone()
    }

    /// Returns the results of both checks, of the last event and of the whole world, after a change
    /// that no event can make.
    fn after(tampering: Tampering) -> (Result<(), Violation>, Result<(), Violation>) {
        let mut world = world();
        world.tamper(tampering);
        (after_event(&world), everything(&world))
    }

    /// Returns a world in which a correction has just written its lease row.
    fn correction() -> World {
        let mut script = Script::new(WorldSettings::default()).unwrap();
        script.event(Event::Drift { cell: 1, drift: Drift::Insert(0) }).wait(3700);
        script.run_verifier_until(1, "commit");
        assert_eq!(everything(script.world()), Ok(()));
        script.world().clone()
    }

    #[test]
    fn a_correction_that_contradicts_its_row_is_found() {
        let mut world = correction();
        world.tamper(Tampering::DropRow(1, 1));
        for found in [after_event(&world), everything(&world)] {
            assert!(matches!(found, Err(Violation::Miscorrected { cell: 1, row: 1, .. })), "{found:?}");
        }
    }

    #[test]
    fn a_correction_with_another_outcome_than_its_lease_row_is_found() {
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
            assert_eq!(after_event(&world), Err(expected));
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
    fn a_claim_of_another_cell_or_row_does_not_cover_a_row() {
        both_find(Tampering::GiveClaim(0, 2), |found| matches!(found, Violation::Unclaimed { cell: 1, row: 1, .. }));
        both_find(Tampering::CopyClaim(0, 2), |found| matches!(found, Violation::Unclaimed { row: 2, .. }));
    }

    #[test]
    fn a_name_owned_by_two_cells_is_found() {
        both_find(Tampering::AddRow(2, 0), |found| matches!(found, Violation::OwnedTwice { cells: [1, 2], .. }));
    }

    #[test]
    fn a_lease_with_another_outcome_than_its_transaction_is_found() {
        let rolled_back = Tampering::Settle(lease_id(1), Outcome::RolledBack);
        both_find(rolled_back, |found| matches!(found, Violation::RolledBackUnderRows { .. }));
        let uncommitted = Tampering::Uncommit(lease_id(1));
        both_find(uncommitted, |found| matches!(found, Violation::CommittedWithoutRows { .. }));
    }

    #[test]
    fn the_engines_own_invariants_are_checked() {
        both_find(Tampering::DropLease(lease_id(3)), |found| matches!(found, Violation::Engine(_)));
        both_find(Tampering::DropClaim(3), |found| matches!(found, Violation::Engine(_)));
        both_find(Tampering::RenumberReplays, |found| matches!(found, Violation::Engine(_)));
    }

    #[test]
    fn a_false_answer_is_found() {
        let told = |answer, requested| {
            after(Tampering::Answer(SettleAnswer { lease: lease_id(1), requested, answer }))
                .0
                .map_err(|found| found.to_string())
        };
        assert_eq!(told(Settled::Done, Outcome::Committed), Ok(()));
        for (answer, wanted, words) in [
            (Settled::Done, Outcome::RolledBack, "was committed, but its cell was told: done"),
            (Settled::RolledBack, Outcome::Committed, "was committed, but its cell was told: it was rolled back"),
            (Settled::NotFound, Outcome::Committed, "was committed, but its cell was told: no such lease"),
        ] {
            assert_eq!(told(answer, wanted), Err(format!("lease {} {words}", lease_id(1))));
        }
        assert_eq!(told(Settled::Committed, Outcome::RolledBack), Ok(()));
    }
}
