//! Work without Ruby's global lock, so that other threads run meanwhile.
#![allow(unsafe_code, reason = "Ruby gives its lock back through a C callback only")]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use magnus::{Error, Ruby};
use rb_sys::rb_thread_call_without_gvl2;

use crate::errors;

/// Runs `work`, which gets no hold of anything of Ruby's: what crosses threads can't.
///
/// # Errors
/// The work panicked, or the thread was interrupted (`Thread#kill`, `Timeout`) before it began. Interrupts that come
/// meanwhile are seen after it, so it should take milliseconds.
pub(crate) fn without_gvl<T: Send>(ruby: &Ruby, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let mut job = Job { work: Some(work), outcome: None };
    loop {
        release(&mut job);
        match job.outcome.take() {
            Some(outcome) => return outcome.map_err(|panic| errors::panicked(ruby, panic.as_ref())),
            // Ruby ran nothing, because an interrupt waits; it may be one that raises.
            None => ruby.thread_check_ints()?,
        }
    }
}

struct Job<T, W> {
    work: Option<W>,
    outcome: Option<std::thread::Result<T>>,
}

fn release<T: Send, W: FnOnce() -> T + Send>(job: &mut Job<T, W>) {
    // SAFETY: `run` gets back the job, which outlives the call. The second variant of the function raises nothing, so no
    // frame of ours is jumped over. Without a function to unblock it Ruby waits for the work to end.
    unsafe { rb_thread_call_without_gvl2(Some(run::<T, W>), ptr::from_mut(job).cast(), None, ptr::null_mut()) };
}

/// Called by Ruby without the lock.
///
/// # Safety
/// `job` is a `Job<T, W>` that nobody else has.
unsafe extern "C" fn run<T: Send, W: FnOnce() -> T + Send>(job: *mut c_void) -> *mut c_void {
    // SAFETY: as the caller promises.
    let job = unsafe { &mut *job.cast::<Job<T, W>>() };
    if let Some(work) = job.work.take() {
        job.outcome = Some(catch_unwind(AssertUnwindSafe(work)));
    }
    ptr::null_mut()
}
