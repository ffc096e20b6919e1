//! `Leasehold::Native::Verification`: a verification session. Rows and records are converted from
//! Ruby objects; a step is an Array that begins with the step's name.

use std::sync::Mutex;

use leasehold_bindings::verify::VerifyStep;
use leasehold_bindings::{Catalogue, DetailedError, List, RefusedClaim, SourceId, UpdateReply, Verification, wire};
use magnus::{Error, IntoValue, RArray, RModule, RString, Ruby, Value, function, method, prelude::*};

use crate::columns;
use crate::errors::{self, catch_panic};
use crate::gvl::without_gvl;
use crate::json;

#[magnus::wrap(class = "Leasehold::Native::Verification", free_immediately, size)]
struct Session(Mutex<Verification>);

pub(crate) fn init(ruby: &Ruby, leasehold: RModule) -> Result<(), Error> {
    let native: RModule = leasehold.const_get("Native")?;
    let class = native.define_class("Verification", ruby.class_object())?;
    class.define_singleton_method("new", function!(Session::new, 2))?;
    class.define_method("step", method!(Session::step, 0))?;
    class.define_method("bound", method!(Session::bound, 1))?;
    class.define_method("records", method!(Session::records, 3))?;
    class.define_method("encoded_records", method!(Session::encoded_records, 2))?;
    class.define_method("rows", method!(Session::rows, 2))?;
    class.define_method("attributes", method!(Session::attributes, 5))?;
    class.define_method("begun", method!(Session::begun, 0))?;
    class.define_method("settled", method!(Session::settled, 0))?;
    class.define_method("failed", method!(Session::failed, 0))?;
    class.define_method("refused", method!(Session::refused, 1))?;
    class.define_method("proceed", method!(Session::proceed, 0))?;
    class.define_method("stop", method!(Session::stop, 0))?;
    class.define_method("checkpoint", method!(Session::checkpoint, 0))?;
    class.define_method("report", method!(Session::report, 0))?;
    class.define_method("take_findings", method!(Session::take_findings, 0))?;
    Ok(())
}

impl Session {
    fn new(ruby: &Ruby, settings: String, checkpoint: Option<String>) -> Result<Self, Error> {
        catch_panic(ruby, || {
            let settings = json::read(ruby, &settings)?;
            let run = Verification::new(settings, Catalogue::default(), checkpoint.as_deref());
            Ok(Self(Mutex::new(run.map_err(|error| errors::engine_error(ruby, &error))?)))
        })
    }

    fn step(ruby: &Ruby, session: &Self) -> Result<Value, Error> {
        session.with(ruby, |run| Ok(step(ruby, run.step())))
    }

    fn bound(ruby: &Ruby, session: &Self, bound: Option<RString>) -> Result<(), Error> {
        let bound = bound.map(columns::source_id);
        session.feed(ruby, |run| run.bound(bound.as_ref().map(SourceId::as_bytes)))
    }

    fn records(ruby: &Ruby, session: &Self, records: RArray, truncated: bool, now: Value) -> Result<(), Error> {
        let records = catch_panic(ruby, || columns::records(ruby, records, now))?;
        session.feed(ruby, |run| run.records(records, truncated))
    }

    fn encoded_records(ruby: &Ruby, session: &Self, answer: RString, now: Value) -> Result<(), Error> {
        let (answer, now) = (columns::bytes(answer), catch_panic(ruby, || columns::time(ruby, now))?);
        session.feed(ruby, |run| {
            let (records, truncated) = wire::records(&answer, now)?;
            run.records(records, truncated)
        })
    }

    fn rows(ruby: &Ruby, session: &Self, rows: RArray, now: Value) -> Result<(), Error> {
        let rows = catch_panic(ruby, || columns::rows(ruby, rows, now))?;
        session.feed(ruby, |run| run.rows(rows))
    }

    fn attributes(
        ruby: &Ruby,
        session: &Self,
        rows: RArray,
        key: Value,
        updated_at: Value,
        claims: RArray,
        now: Value,
    ) -> Result<(), Error> {
        let rows = catch_panic(ruby, || {
            let layout = columns::Layout::new(key, updated_at, claims)?;
            columns::attributes(ruby, rows, &layout, now)
        })?;
        session.feed(ruby, |run| run.rows(rows))
    }

    fn begun(ruby: &Ruby, session: &Self) -> Result<(), Error> {
        session.feed(ruby, |run| run.updated(UpdateReply::Begun))
    }

    fn settled(ruby: &Ruby, session: &Self) -> Result<(), Error> {
        session.feed(ruby, |run| run.updated(UpdateReply::Settled))
    }

    fn failed(ruby: &Ruby, session: &Self) -> Result<(), Error> {
        session.feed(ruby, |run| run.updated(UpdateReply::Failed))
    }

    fn refused(ruby: &Ruby, session: &Self, claims: Vec<(String, u32, String)>) -> Result<(), Error> {
        let refused = |(list, position, code): (String, u32, String)| {
            let list = if list == "create" { List::Creates } else { List::Destroys };
            RefusedClaim { list, position, code }
        };
        let claims = claims.into_iter().map(refused).collect();
        session.feed(ruby, |run| run.updated(UpdateReply::Refused(claims)))
    }

    fn proceed(ruby: &Ruby, session: &Self) -> Result<(), Error> {
        session.feed(ruby, Verification::proceed)
    }

    fn stop(ruby: &Ruby, session: &Self) -> Result<(), Error> {
        session.feed(ruby, Verification::stop)
    }

    fn checkpoint(ruby: &Ruby, session: &Self) -> Result<Option<String>, Error> {
        session.with(ruby, |run| run.checkpoint().map_err(|error| errors::engine_error(ruby, &error)))
    }

    fn report(ruby: &Ruby, session: &Self) -> Result<String, Error> {
        session.with(ruby, |run| json::write(ruby, run.report()))
    }

    fn take_findings(ruby: &Ruby, session: &Self) -> Result<String, Error> {
        session.with(ruby, |run| json::write(ruby, &run.take_findings()))
    }

    /// Feeds a result to the session without the GVL, because the session may compare thousands of
    /// rows.
    fn feed(
        &self,
        ruby: &Ruby,
        body: impl FnOnce(&mut Verification) -> Result<(), DetailedError> + Send,
    ) -> Result<(), Error> {
        self.with(ruby, |run| without_gvl(ruby, || body(run))?.map_err(|error| errors::engine_error(ruby, &error)))
    }

    fn with<T>(&self, ruby: &Ruby, body: impl FnOnce(&mut Verification) -> Result<T, Error>) -> Result<T, Error> {
        catch_panic(ruby, || match self.0.try_lock() {
            Ok(mut run) => body(&mut run),
            Err(_) => Err(errors::session_in_use(ruby)),
        })
    }
}

fn step(ruby: &Ruby, step: &VerifyStep) -> Value {
    let bytes = |id: &SourceId| (!id.is_empty()).then(|| ruby.str_from_slice(id.as_bytes()));
    let name = |name: &str| ruby.to_symbol(name);
    match step {
        VerifyStep::FindBound { after, rows } => (name("find_bound"), bytes(after), *rows).into_value_with(ruby),
        VerifyStep::ListRecords { after, upto } => {
            (name("list_records"), bytes(after), bytes(upto)).into_value_with(ruby)
        }
        VerifyStep::ReadRows { after, upto } => (name("read_rows"), bytes(after), bytes(upto)).into_value_with(ruby),
        VerifyStep::ReadAgain { ids } => {
            let ids = ruby.ary_from_iter(ids.iter().map(bytes));
            (name("read_again"), ids).into_value_with(ruby)
        }
        VerifyStep::Begin(update) => {
            let encoded = ruby.str_from_slice(&wire::update(update));
            (name("begin"), encoded, update.creates.len(), update.destroys.len()).into_value_with(ruby)
        }
        VerifyStep::Commit => (name("commit"),).into_value_with(ruby),
        VerifyStep::RollBack => (name("roll_back"),).into_value_with(ruby),
        VerifyStep::PageDone => (name("page_done"),).into_value_with(ruby),
        VerifyStep::Refused(refusal) => {
            let needed_share = refusal.needed_share().as_f64();
            (name("refused"), refusal.destroys, refusal.claims, needed_share).into_value_with(ruby)
        }
        VerifyStep::Done => (name("done"),).into_value_with(ruby),
    }
}
