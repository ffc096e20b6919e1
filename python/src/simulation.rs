//! `_native.Simulation` and `_native.Explorer`: runs and searches of simulated worlds. Values are
//! passed as JSON, in the format of traces.

use leasehold_bindings::DetailedError;
use leasehold_simulation::explorer::{self, InvalidPlan};
use leasehold_simulation::player::Player;
use leasehold_simulation::quiescence::NotQuiescent;
use leasehold_simulation::settings::{InvalidSettings, Mode, Rule};
use leasehold_simulation::trace::{InvalidTrace, Trace};
use leasehold_simulation::world::ImpossibleEvent;
use leasehold_simulation::{event_text, plans, possible, view};
use pyo3::prelude::*;

use crate::errors;
use crate::session::{Session, from_json, to_json};

#[pyclass(frozen, module = "leasehold._native")]
pub(crate) struct Simulation(Session<Player>);

#[pymethods]
impl Simulation {
    #[new]
    fn new(py: Python<'_>, settings: &str) -> PyResult<Self> {
        let player = Player::new(from_json(py, settings)?);
        Ok(Self(Session::new(player.map_err(|error| bad_settings(py, &error))?)))
    }

    #[staticmethod]
    fn load(py: Python<'_>, trace: &str) -> PyResult<Self> {
        let player = py.detach(|| Player::load(Trace::parse(trace)?));
        let invalid = |error: InvalidTrace| errors::with_code(py, error.code(), error);
        Ok(Self(Session::new(player.map_err(invalid)?)))
    }

    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.with(py, |player| Ok(player.position()))
    }

    #[getter]
    fn length(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.with(py, |player| Ok(player.events().len()))
    }

    fn settings(&self, py: Python<'_>) -> PyResult<String> {
        self.0.with(py, |player| to_json(py, player.world().settings()))
    }

    fn trace(&self, py: Python<'_>) -> PyResult<String> {
        self.0.with(py, |player| to_json(py, &player.trace()))
    }

    fn step(&self, py: Python<'_>) -> PyResult<bool> {
        self.0.with(py, |player| Ok(player.step()))
    }

    fn back(&self, py: Python<'_>) -> PyResult<bool> {
        self.0.work(py, |player| Ok(player.step_back()))
    }

    fn seek(&self, py: Python<'_>, position: usize) -> PyResult<()> {
        self.0.work(py, |player| {
            player.seek(position);
            Ok(())
        })
    }

    fn apply(&self, py: Python<'_>, event: &str) -> PyResult<()> {
        let event = from_json(py, event)?;
        self.0.work(py, |player| player.apply(event).map_err(impossible))
    }

    fn play(&self, py: Python<'_>, events: u32) -> PyResult<u32> {
        self.0.work(py, |player| Ok(player.play_randomly(events)))
    }

    fn quiesce(&self, py: Python<'_>) -> PyResult<usize> {
        self.0
            .work(py, |player| player.quiesce().map_err(|error: NotQuiescent| DetailedError::new("IMPOSSIBLE", error)))
    }

    fn possible(&self, py: Python<'_>) -> PyResult<String> {
        self.0.with(py, |player| to_json(py, &possible::events(player.world())))
    }

    fn describe(&self, py: Python<'_>, event: &str) -> PyResult<String> {
        self.0.with(py, |player| Ok(event_text::describe(player.world(), from_json(py, event)?)))
    }

    fn view(&self, py: Python<'_>) -> PyResult<String> {
        self.0.with(py, |player| to_json(py, &view::View::of(player.world())))
    }

    fn entries(&self, py: Python<'_>, start: usize, stop: usize) -> PyResult<String> {
        self.0.with(py, |player| to_json(py, &player.timeline().entries(start, stop).collect::<Vec<_>>()))
    }

    fn arrows(&self, py: Python<'_>, start: usize, stop: usize) -> PyResult<String> {
        self.0.with(py, |player| to_json(py, &player.timeline().arrows(start, stop).collect::<Vec<_>>()))
    }

    fn marks(&self, py: Python<'_>) -> PyResult<String> {
        self.0.with(py, |player| to_json(py, &player.timeline().marks()))
    }

    fn minimise(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let shorter = self.0.work(py, |player| Ok(player.trace().minimise()))?;
        shorter.map(|trace| to_json(py, &trace)).transpose()
    }
}

#[pyclass(frozen, module = "leasehold._native")]
pub(crate) struct Explorer(Session<explorer::Explorer>);

#[pymethods]
impl Explorer {
    #[new]
    fn new(py: Python<'_>, plan: &str) -> PyResult<Self> {
        let explorer = explorer::Explorer::new(from_json(py, plan)?);
        let invalid = |error: InvalidPlan| errors::with_code(py, "INVALID_ARGUMENT", error);
        Ok(Self(Session::new(explorer.map_err(invalid)?)))
    }

    fn explore(&self, py: Python<'_>, states: u64) -> PyResult<bool> {
        self.0.work(py, |explorer| Ok(explorer.explore(states)))
    }

    fn progress(&self, py: Python<'_>) -> PyResult<String> {
        self.0.with(py, |explorer| to_json(py, &explorer.progress()))
    }

    fn found(&self, py: Python<'_>) -> PyResult<Option<(String, String)>> {
        self.0.with(py, |explorer| {
            let found = explorer.counterexample();
            found.map(|found| Ok((found.violation.to_string(), to_json(py, &found.trace)?))).transpose()
        })
    }
}

/// Returns all recorded scenarios as JSON.
#[pyfunction]
pub(crate) fn scenarios(py: Python<'_>) -> PyResult<String> {
    to_json(py, &leasehold_simulation::scenarios::all().map_err(|error| errors::with_code(py, "INVALID_TRACE", error))?)
}

/// Returns each rule that can be switched off, with its summary, as JSON.
#[pyfunction]
pub(crate) fn rules(py: Python<'_>) -> PyResult<String> {
    to_json(py, &Rule::ALL.map(|rule| (rule, rule.summary())))
}

/// Returns, as JSON, a plan whose world breaks a promise because the rule `rule` is switched off.
#[pyfunction]
pub(crate) fn rule_world(py: Python<'_>, rule: &str) -> PyResult<String> {
    let rule = from_json(py, rule)?;
    let plan = plans::about(rule, Mode::BeforeCommit).map_err(|error| errors::with_code(py, "IMPOSSIBLE", error))?;
    to_json(py, &plans::without(rule, plan))
}

/// Returns the engine's transition tables of claims and of leases as JSON.
#[pyfunction]
pub(crate) fn transition_tables(py: Python<'_>) -> PyResult<String> {
    to_json(py, &view::Tables::new())
}

fn bad_settings(py: Python<'_>, error: &InvalidSettings) -> PyErr {
    errors::with_code(py, "INVALID_ARGUMENT", error)
}

fn impossible(error: ImpossibleEvent) -> DetailedError {
    DetailedError::new("IMPOSSIBLE", error)
}
