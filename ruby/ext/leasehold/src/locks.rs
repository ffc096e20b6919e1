//! `Leasehold::Native::LockService`: a service of sessions and locks in memory, for an application's
//! tests. Times are microseconds since 1970; ids are Strings of 16 bytes.

use std::num::NonZeroU32;
use std::sync::Mutex;

use leasehold_bindings::{
    Acquired, DetailedError, LockPath, LockRecord, LockService, ReleaseRequest, Resolution, ShareMode, Timestamp,
};
use magnus::{Error, IntoValue, RArray, RModule, RString, Ruby, Value, function, method, prelude::*};
use uuid::Uuid;

use crate::columns::bytes;
use crate::errors::{self, catch_panic};

#[magnus::wrap(class = "Leasehold::Native::LockService", free_immediately, size)]
struct SessionsAndLocks(Mutex<LockService>);

/// The namespace and the key of a lock, and the number of a slot: 0 for the lock itself.
type Path = (String, String, u32);

/// True if an ask shares its lock as readers do, and the number of permits of which it wants one.
type Share = (bool, u32);

pub(crate) fn init(ruby: &Ruby, leasehold: RModule) -> Result<(), Error> {
    let native: RModule = leasehold.const_get("Native")?;
    let class = native.define_class("LockService", ruby.class_object())?;
    class.define_singleton_method("new", function!(SessionsAndLocks::new, 2))?;
    class.define_method("copy", method!(SessionsAndLocks::copy, 1))?;
    class.define_method("open", method!(SessionsAndLocks::open, 4))?;
    class.define_method("renew", method!(SessionsAndLocks::renew, 2))?;
    class.define_method("close", method!(SessionsAndLocks::close, 2))?;
    class.define_method("expire", method!(SessionsAndLocks::expire, 2))?;
    class.define_method("acquire", method!(SessionsAndLocks::acquire, 6))?;
    class.define_method("leave", method!(SessionsAndLocks::leave, 3))?;
    class.define_method("release", method!(SessionsAndLocks::release, 6))?;
    class.define_method("force", method!(SessionsAndLocks::force, 4))?;
    class.define_method("elapse", method!(SessionsAndLocks::elapse, 2))?;
    class.define_method("reap_namespace", method!(SessionsAndLocks::reap_namespace, 2))?;
    class.define_method("reap", method!(SessionsAndLocks::reap, 4))?;
    class.define_method("resolve", method!(SessionsAndLocks::resolve, 4))?;
    class.define_method("lock", method!(SessionsAndLocks::lock, 1))?;
    class.define_method("locks", method!(SessionsAndLocks::locks, 3))?;
    Ok(())
}

impl SessionsAndLocks {
    /// Creates a service without sessions, whose fences are larger than `fence`.
    fn new(ruby: &Ruby, principal: String, fence: u64) -> Result<Self, Error> {
        let new = || LockService::new(&principal).and_then(|service| after(service, fence));
        catch_panic(ruby, || Ok(Self(Mutex::new(new().map_err(|error| errors::engine_error(ruby, &error))?))))
    }

    /// Returns another service with the same sessions and locks, whose next fences are larger than
    /// `fence`.
    fn copy(ruby: &Ruby, service: &Self, fence: u64) -> Result<Self, Error> {
        let copy = service.call(ruby, |service| after(service.clone(), fence))?;
        Ok(Self(Mutex::new(copy)))
    }

    fn open(
        ruby: &Ruby,
        service: &Self,
        session: RString,
        duration_micros: u64,
        grace_micros: u64,
        now: u64,
    ) -> Result<bool, Error> {
        let session = id(ruby, session)?;
        service.call(ruby, |service| service.open(session, duration_micros, grace_micros, Timestamp::from_micros(now)))
    }

    /// Returns the fences of the session's grants that an operator has taken.
    fn renew(ruby: &Ruby, service: &Self, session: RString, now: u64) -> Result<Vec<u64>, Error> {
        let session = id(ruby, session)?;
        service.call(ruby, |service| service.renew(session, Timestamp::from_micros(now)))
    }

    fn close(ruby: &Ruby, service: &Self, session: RString, now: u64) -> Result<bool, Error> {
        let session = id(ruby, session)?;
        service.call(ruby, |service| service.close(session, Timestamp::from_micros(now)))
    }

    fn expire(ruby: &Ruby, service: &Self, session: RString, now: u64) -> Result<bool, Error> {
        let session = id(ruby, session)?;
        service.call(ruby, |service| service.expire(session, Timestamp::from_micros(now)))
    }

    /// Returns the fence of the grant, the slot, and nil. If the ask waits, returns nil, 0 and its place.
    #[expect(clippy::too_many_arguments, reason = "a Ruby method takes values, not a struct")]
    fn acquire(
        ruby: &Ruby,
        service: &Self,
        session: RString,
        ask: RString,
        path: Path,
        (shared, permits): Share,
        wait_micros: u64,
        now: u64,
    ) -> Result<(Option<u64>, u32, Option<u32>), Error> {
        let (session, ask) = (id(ruby, session)?, id(ruby, ask)?);
        let acquired = service.call(ruby, |service| {
            let share = ShareMode::parse(shared, permits)?;
            service.acquire(session, ask, parse(&path)?, share, wait_micros, Timestamp::from_micros(now))
        })?;
        Ok(match acquired {
            Acquired::Holding(hold) => (Some(hold.fence.0), hold.slot, None),
            Acquired::Waiting(ahead) => (None, 0, Some(ahead)),
        })
    }

    fn leave(ruby: &Ruby, service: &Self, session: RString, ask: RString, now: u64) -> Result<bool, Error> {
        let (session, ask) = (id(ruby, session)?, id(ruby, ask)?);
        service.call(ruby, |service| service.leave(session, ask, Timestamp::from_micros(now)))
    }

    #[expect(clippy::too_many_arguments, reason = "a Ruby method takes values, not a struct")]
    fn release(
        ruby: &Ruby,
        service: &Self,
        session: RString,
        path: Path,
        fence: u64,
        failed: bool,
        value: RString,
        now: u64,
    ) -> Result<bool, Error> {
        let (session, value) = (id(ruby, session)?, bytes(value));
        let request = ReleaseRequest { fence, failed, value: &value };
        service.call(ruby, |service| service.release(session, parse(&path)?, request, Timestamp::from_micros(now)))
    }

    fn force(ruby: &Ruby, service: &Self, path: Path, fence: u64, at_once: bool, now: u64) -> Result<bool, Error> {
        service.call(ruby, |service| service.force(parse(&path)?, fence, at_once, Timestamp::from_micros(now)))
    }

    fn elapse(ruby: &Ruby, service: &Self, path: Path, now: u64) -> Result<bool, Error> {
        service.call(ruby, |service| service.elapse(parse(&path)?, Timestamp::from_micros(now)))
    }

    /// Makes the locks of a namespace wait for a cleanup after the death of their holder.
    fn reap_namespace(ruby: &Ruby, service: &Self, namespace: String, attempts: u32) -> Result<(), Error> {
        service.call(ruby, |service| service.reap_namespace(&namespace, attempts))
    }

    /// Returns an orphaned lock that the session holds now; nil if none is orphaned.
    fn reap(
        ruby: &Ruby,
        service: &Self,
        session: RString,
        ask: RString,
        namespace: String,
        now: u64,
    ) -> Result<Option<Value>, Error> {
        let (session, ask) = (id(ruby, session)?, id(ruby, ask)?);
        let lock = service.call(ruby, |service| service.reap(session, ask, &namespace, Timestamp::from_micros(now)))?;
        Ok(lock.map(|lock| members(ruby, &lock)))
    }

    fn resolve(ruby: &Ruby, service: &Self, path: Path, fence: u64, cleaned: bool, now: u64) -> Result<bool, Error> {
        let resolution = if cleaned { Resolution::Cleaned } else { Resolution::Retry };
        service.call(ruby, |service| service.resolve(parse(&path)?, fence, resolution, Timestamp::from_micros(now)))
    }

    /// Returns the lock; nil if nobody has held it.
    fn lock(ruby: &Ruby, service: &Self, path: Path) -> Result<Option<Value>, Error> {
        let lock = service.call(ruby, |service| service.lock(&parse(&path)?))?;
        Ok(lock.map(|lock| members(ruby, &lock)))
    }

    /// Returns a page of locks, and true if more remain.
    fn locks(
        ruby: &Ruby,
        service: &Self,
        namespace: String,
        limit: u32,
        after: Option<Path>,
    ) -> Result<(RArray, bool), Error> {
        let page =
            service.call(ruby, |service| service.locks(&namespace, limit, after.as_ref().map(parse).transpose()?))?;
        Ok((ruby.ary_from_iter(page.locks.iter().map(|lock| members(ruby, lock))), page.truncated))
    }

    /// Runs the body under the lock. A call keeps Ruby's lock until it ends, so another thread never
    /// waits for this one.
    fn call<T>(
        &self,
        ruby: &Ruby,
        body: impl FnOnce(&mut LockService) -> Result<T, DetailedError>,
    ) -> Result<T, Error> {
        catch_panic(ruby, || match self.0.try_lock() {
            Ok(mut service) => body(&mut service).map_err(|error| errors::engine_error(ruby, &error)),
            Err(_) => Err(errors::session_in_use(ruby)),
        })
    }
}

fn after(mut service: LockService, fence: u64) -> Result<LockService, DetailedError> {
    service.skip_fences(fence)?;
    Ok(service)
}

fn id(ruby: &Ruby, id: RString) -> Result<Uuid, Error> {
    let id = Uuid::from_slice(&bytes(id));
    id.map_err(|_| errors::internal(ruby, "INVALID_UPDATE", "the id of a session or an ask does not have 16 bytes"))
}

fn parse((namespace, key, slot): &Path) -> Result<LockPath, DetailedError> {
    Ok(LockPath::parse_joined(namespace, key)?.at_slot(*slot)?)
}

/// Returns the members of a lock: namespace, key and slot; state, fence, session; the time of its last
/// change, the number of asks that wait; the last grant with its fence, end, value and time of its
/// end; the grant whose cleanup is due with its fence, end, time of its end, and the number and the
/// most of its cleanups; the number of slots that are taken, and the number of permits.
fn members(ruby: &Ruby, record: &LockRecord) -> Value {
    let session = record.session().map(|session| ruby.str_from_slice(session.as_bytes()));
    let last = record.lock.last.as_ref().zip(record.last_end()).map(|(last, end)| {
        (last.grant.fence.0, end, ruby.str_from_slice(last.value.as_bytes()), last.ended_at.as_micros())
    });
    let obituary = record.lock.obituary.zip(record.obituary_end()).map(|(obituary, end)| {
        let most = record.lock.reaped.map_or(0, NonZeroU32::get);
        (obituary.fence.0, end, obituary.ended_at.as_micros(), obituary.attempts, most)
    });
    (
        (record.path.namespace(), record.path.key(), record.path.slot()),
        record.state(),
        record.fence(),
        session,
        record.lock.updated_at.as_micros(),
        record.lock.waiting,
        last,
        obituary,
        record.division(),
    )
        .into_value_with(ruby)
}
