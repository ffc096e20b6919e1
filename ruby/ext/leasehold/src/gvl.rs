//! Runs work without Ruby's global VM lock (GVL), so that other Ruby threads can run.
#![allow(unsafe_code, reason = "Ruby releases the GVL only for a C callback")]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use magnus::{Error, Ruby};
use rb_sys::rb_thread_call_without_gvl2;

use crate::errors;

/// Runs `work` without the GVL. `Send` keeps Ruby values out of the work, since magnus' values are
/// not `Send`.
///
/// # Errors
/// Fails if the work panics, or if the thread is interrupted (`Thread#kill`, `Timeout`) before the
/// work starts. An interrupt during the work is handled after it, so the work should take
/// milliseconds.
pub(crate) fn without_gvl<T: Send>(ruby: &Ruby, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let mut job = Job { work: Some(work), outcome: None };
    loop {
        run_without_gvl(&mut job);
        match job.outcome.take() {
            Some(outcome) => return outcome.map_err(|panic| errors::panicked(ruby, panic.as_ref())),
            // `rb_thread_call_without_gvl2` returns without running the work if an interrupt is
            // pending (Ruby 3.1, ruby/thread.h:151). Handling the interrupt may raise an exception.
            None => ruby.thread_check_ints()?,
        }
    }
}

struct Job<T, W> {
    work: Option<W>,
    outcome: Option<std::thread::Result<T>>,
}

fn run_without_gvl<T: Send, W: FnOnce() -> T + Send>(job: &mut Job<T, W>) {
    // SAFETY: `run` receives a pointer to the job, which outlives the call.
    // `rb_thread_call_without_gvl2` raises no exception itself, so no Rust frame is unwound by
    // `longjmp`. Without an unblocking function Ruby waits until the work ends.
    unsafe { rb_thread_call_without_gvl2(Some(run::<T, W>), ptr::from_mut(job).cast(), None, ptr::null_mut()) };
}

/// Called by Ruby without the GVL.
///
/// # Safety
/// `job` must point to a `Job<T, W>` that nothing else accesses.
unsafe extern "C" fn run<T: Send, W: FnOnce() -> T + Send>(job: *mut c_void) -> *mut c_void {
    // SAFETY: the caller guarantees exclusive access to the job.
    let job = unsafe { &mut *job.cast::<Job<T, W>>() };
    if let Some(work) = job.work.take() {
        job.outcome = Some(catch_unwind(AssertUnwindSafe(work)));
    }
    ptr::null_mut()
}
