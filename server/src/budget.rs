//! The bytes of requests that the server holds, from their arrival to their answer. One bound
//! applies to each connection and one to the server, so memory use is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of requests that all connections may hold together.
#[derive(Debug)]
pub struct ServerBudget {
    held: AtomicUsize,
    max: AtomicUsize,
    max_of_connection: AtomicUsize,
}

/// The bytes of requests that one connection holds.
#[derive(Debug)]
pub struct ConnectionBudget {
    held: AtomicUsize,
    server: Arc<ServerBudget>,
}

/// The bytes that one request holds; dropping it returns them.
#[derive(Debug)]
pub struct Charge {
    bytes: usize,
    connection: Arc<ConnectionBudget>,
}

/// The refusal of a request that would exceed a bound, with the name of the bound's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetExceeded(pub &'static str);

impl ServerBudget {
    /// A budget of `max` bytes, of which one connection may hold `max_of_connection`.
    pub fn new(max: usize, max_of_connection: usize) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), max: max.into(), max_of_connection: max_of_connection.into() })
    }

    /// Changes the bounds. Bytes that are held stay.
    pub fn set_bounds(&self, max: usize, max_of_connection: usize) {
        self.max.store(max, Ordering::Relaxed);
        self.max_of_connection.store(max_of_connection, Ordering::Relaxed);
    }

    /// The bytes that all connections hold now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl ConnectionBudget {
    /// The budget of a new connection.
    pub fn new(server: Arc<ServerBudget>) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), server })
    }
}

impl Charge {
    /// The charge of a new request: no byte has arrived yet.
    pub fn new(connection: Arc<ConnectionBudget>) -> Self {
        Self { bytes: 0, connection }
    }

    /// Charges `bytes` that have arrived. If no other request holds bytes, the request passes
    /// however low the bounds are.
    ///
    /// # Errors
    /// The connection or the server would hold more than it may. The charge stays as it was.
    pub fn add(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        let ConnectionBudget { held, server } = &*self.connection;
        if !self.fits(held, bytes, server.max_of_connection.load(Ordering::Relaxed)) {
            return Err(BudgetExceeded("limits.request_mib_per_connection"));
        }
        if !self.fits(&server.held, bytes, server.max.load(Ordering::Relaxed)) {
            held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(BudgetExceeded("limits.request_mib"));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Adds `bytes` to `held` and returns true if the sum is at most `max`, or if no other request
    /// holds bytes.
    fn fits(&self, held: &AtomicUsize, bytes: usize, max: usize) -> bool {
        let before = held.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= max || before <= self.bytes;
        if !fits {
            held.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.connection.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.connection.server.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_bounded_for_the_connection_and_for_the_server() {
        let server = ServerBudget::new(100, 60);
        let [one, two] = [(); 2].map(|()| ConnectionBudget::new(server.clone()));
        let mut first = Charge::new(one.clone());
        assert_eq!(first.add(50), Ok(()));
        assert_eq!(Charge::new(one.clone()).add(11), Err(BudgetExceeded("limits.request_mib_per_connection")));
        assert_eq!(Charge::new(one).add(10), Ok(()));
        let mut second = Charge::new(two);
        assert_eq!(second.add(51), Err(BudgetExceeded("limits.request_mib")));
        assert_eq!(second.add(50), Ok(()));
        assert_eq!(server.held(), 100);
        drop(first);
        assert_eq!(second.add(10), Ok(()));
        drop(second);
        assert_eq!(server.held(), 0);
    }

    #[test]
    fn a_request_alone_passes_any_bound() {
        let server = ServerBudget::new(10, 10);
        let connection = ConnectionBudget::new(server.clone());
        let mut alone = Charge::new(connection.clone());
        assert_eq!((alone.add(8), alone.add(100)), (Ok(()), Ok(())));
        assert!(Charge::new(connection).add(1).is_err());
        drop(alone);
        assert_eq!(server.held(), 0);
    }
}
