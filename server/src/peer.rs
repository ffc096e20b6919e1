//! The client at the other end of a connection: its credentials, and the caller that they identify
//! under the configuration in force.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustls::pki_types::CertificateDer;

use crate::active_config::ActiveConfig;
use crate::budget::ConnectionBudgets;
use crate::config::Config;
use crate::identity::Caller;

/// The client at the other end of a connection, as an extension of each request on it.
#[derive(Clone, Debug)]
pub struct Peer(Arc<PeerState>);

#[derive(Debug)]
struct PeerState {
    credentials: Credentials,
    /// The caller that was found last, and the configuration under which it was found.
    cached_caller: Mutex<(Arc<ActiveConfig>, Caller)>,
    /// The time at which the first of the client's certificates expires; `None` without
    /// certificates.
    valid_until: Option<Instant>,
    // True if a reload has changed the certificate authorities, and they reject the client's
    // certificates.
    is_revoked: AtomicBool,
    budgets: ConnectionBudgets,
}

/// The proof of identity that a client gave in the TLS handshake.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// The connection is in plain text.
    Plaintext,
    /// The client has no certificate.
    None,
    /// The certificate in DER, which the TLS handshake has verified.
    Certificate(CertificateDer<'static>),
}

impl Credentials {
    /// The caller that the credentials identify under this configuration.
    fn identify(&self, config: &Config) -> Caller {
        match self {
            Self::Plaintext if config.subjects.loopback_balancer => Caller::Balancer,
            Self::Plaintext => Caller::Trusted,
            Self::None => Caller::Anonymous,
            Self::Certificate(der) => {
                // A server never changes between plain text and TLS.
                let domain = config.tls.as_ref().map(|tls| tls.trust_domain.as_str()).unwrap_or_default();
                Caller::of_certificate(der, domain, |subject| config.subjects.caller(subject))
            }
        }
    }
}

impl Peer {
    /// A peer with the credentials from the handshake.
    pub fn new(
        credentials: Credentials,
        config: Arc<ActiveConfig>,
        valid_until: Option<Instant>,
        budgets: ConnectionBudgets,
    ) -> Self {
        let caller = credentials.identify(&config.config);
        let cached_caller = Mutex::new((config, caller));
        Self(Arc::new(PeerState {
            credentials,
            cached_caller,
            valid_until,
            is_revoked: AtomicBool::new(false),
            budgets,
        }))
    }

    /// The caller of a request at `now`, under this configuration. If the certificates have expired
    /// or were revoked, the caller is [`Caller::Anonymous`].
    pub fn caller(&self, config: &Arc<ActiveConfig>, now: Instant) -> Caller {
        let is_over = self.0.valid_until.is_some_and(|until| now >= until);
        if is_over || self.0.is_revoked.load(Ordering::Relaxed) {
            Caller::Anonymous
        } else {
            self.cached_caller(config)
        }
    }

    /// The caller under this configuration. The last result is kept, because a certificate is slow
    /// to parse and the configuration rarely changes.
    fn cached_caller(&self, config: &Arc<ActiveConfig>) -> Caller {
        // INVARIANT: the pair is replaced as a whole, so a panic leaves none half changed.
        let mut cached_caller = self.0.cached_caller.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&cached_caller.0, config) {
            *cached_caller = (config.clone(), self.0.credentials.identify(&config.config));
        }
        cached_caller.1.clone()
    }

    /// Makes the caller of all later requests [`Caller::Anonymous`].
    pub fn revoke(&self) {
        self.0.is_revoked.store(true, Ordering::Relaxed);
    }

    /// The time at which the first of the peer's certificates expires; `None` without certificates.
    pub fn valid_until(&self) -> Option<Instant> {
        self.0.valid_until
    }

    /// The budgets of the connection.
    pub fn budgets(&self) -> &ConnectionBudgets {
        &self.0.budgets
    }
}
