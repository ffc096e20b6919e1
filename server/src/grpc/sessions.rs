//! The service `SessionService`: opens, renews, watches and ends the sessions of locks.

use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use leasehold_core::command::{Command, Reply};
use leasehold_core::lease::Fence;
use leasehold_core::locking::end::{Cause, End};
use leasehold_core::locking::open::Open;
use leasehold_core::locking::renew::Renew;
use leasehold_core::locking::{LockCommand, LockReply};
use leasehold_core::rows::{OrderedRead, SessionOrder};
use leasehold_core::session::{Principal, SessionId, Terms};
use leasehold_proto::leasehold::sessions::v1::session_service_server::SessionService;
use leasehold_proto::leasehold::sessions::v1::watch_session_response::News;
use leasehold_proto::leasehold::sessions::v1::{
    CloseSessionRequest, CloseSessionResponse, EvictSessionRequest, EvictSessionResponse, OpenSessionRequest,
    OpenSessionResponse, RenewSessionRequest, RenewSessionResponse, WatchSessionRequest, WatchSessionResponse,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status, async_trait};

use super::{Services, admitted, errors};
use crate::active_config::ActiveConfig;
use crate::committer::{CommitterRefusal, LimitReached};
use crate::identity::{Caller, Denied};
use crate::locks::{RenewOutcome, SessionNews};

/// A stream of responses.
pub(super) type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The handlers of `SessionService`.
#[derive(Clone)]
pub struct SessionHandler {
    /// The state of the services.
    pub services: Arc<Services>,
    /// Becomes true when the server stops.
    pub stopping: watch::Receiver<bool>,
}

/// A caller that may use locks, with the configuration of its call.
pub(super) struct LockCaller {
    pub(super) caller: Caller,
    pub(super) principal: Principal,
    pub(super) config: Arc<ActiveConfig>,
}

impl LockCaller {
    /// Returns the caller of a request, or the status of a caller that may use no locks.
    pub(super) fn of<T>(request: &Request<T>) -> Result<Self, Status> {
        let (permit, config) = admitted(request)?;
        let caller = permit.caller();
        let principal = caller.principal().filter(|_| config.config.locks.allows_any(&caller));
        let principal = principal.ok_or_else(|| errors::denied(Denied::NamespaceDenied))?;
        Ok(Self { caller, principal, config })
    }
}

impl Services {
    /// Submits a command of sessions and locks, and returns its reply when its changes are durable.
    pub(super) async fn submit_lock(
        &self,
        config: &ActiveConfig,
        caller: Caller,
        command: LockCommand,
    ) -> Result<LockReply, Status> {
        let decision = self.committer.submit(caller, Command::Lock(command)).await;
        let decided = decision.map_err(|refusal| errors::refused(&refusal))?;
        match decided.map_err(|rejection| self.reject(config, &rejection))? {
            Reply::Lock(reply) => Ok(reply),
            Reply::Begun(_) | Reply::Settled(_) | Reply::Forgotten(_) | Reply::Queue(_) => {
                Err(errors::internal("a command of locks got the reply of another command"))
            }
        }
    }

    /// Refuses a session beyond the limits of the server or of its service.
    fn check_sessions(&self, caller: &LockCaller) -> Result<(), Status> {
        let limits = &caller.config.config.limits;
        let (all, own) = self.locks.sessions(&caller.principal);
        let limit = if all >= limits.sessions {
            LimitReached::OfServer { setting: "limits.sessions", max: limits.sessions }
        } else if own >= limits.sessions_per_service {
            LimitReached::SessionsOfService { max: limits.sessions_per_service }
        } else {
            return Ok(());
        };
        self.metrics.shed("OpenSession");
        Err(errors::refused(&CommitterRefusal::overloaded(limit)))
    }

    /// Renews a session in memory. A session that this host does not know is renewed by a write,
    /// which tells a session that has moved here from one that has ended. Returns the fences of the
    /// session's grants that an operator has taken.
    async fn renew(&self, caller: &LockCaller, session: SessionId) -> Result<Vec<Fence>, Status> {
        loop {
            match self.locks.renew(session, &caller.principal) {
                RenewOutcome::Renewed(forced) => return Ok(forced),
                // The wait ends with an error only if the server stops.
                RenewOutcome::Deciding(mut decided) => {
                    decided.changed().await.map_err(|_| errors::refused(&CommitterRefusal::Stopping))?;
                }
                RenewOutcome::Unknown => {
                    let renew = Renew { session, principal: caller.principal.clone() };
                    self.submit_lock(&caller.config, caller.caller.clone(), LockCommand::Renew(renew)).await?;
                    // The host has learnt of the session from the write, but not of its past.
                    self.load_forced(session).await?;
                    return Ok(self.locks.forced(session));
                }
            }
        }
    }

    /// Shows the host which grants of a session an operator took while another server watched it.
    async fn load_forced(&self, session: SessionId) -> Result<(), Status> {
        if let Some(shared) = &self.shared_locks {
            let forced = shared.forced(&[session]).await.map_err(|error| errors::away(&error))?;
            self.locks.learn_forced(forced);
        }
        Ok(())
    }

    /// Shows the host a session that renews at another server, so that a call here can wait for news
    /// of it. The host forgets the session once no call has its news.
    pub(super) async fn follow(
        &self,
        session: SessionId,
        principal: &Principal,
    ) -> Result<Option<watch::Receiver<SessionNews>>, Status> {
        let known = self.locks.watch(session, principal);
        if self.shared_locks.is_none() || known.is_some() {
            return Ok(known);
        }
        let only = || Bound::Included(SessionOrder::Live(session));
        let read = OrderedRead { from: only(), to: only(), limit: 1 };
        let found = self.store.sessions(read).await.map_err(|error| errors::away(&error))?;
        Ok(found.first().and_then(|(id, session)| self.locks.follow(*id, session)))
    }
}

/// Parses an id of 16 bytes.
pub(super) fn read_id(field: &'static str, bytes: &[u8]) -> Result<uuid::Uuid, Status> {
    uuid::Uuid::from_slice(bytes).map_err(|_| errors::invalid(&format!("`{field}` does not have 16 bytes")))
}

fn read_session(bytes: &[u8]) -> Result<SessionId, Status> {
    read_id("session_id", bytes).map(SessionId)
}

/// Waits until the server stops.
pub(super) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    if stopping.wait_for(|stop| *stop).await.is_err() {
        // INVARIANT: the sender lives as long as the server, so this branch is never reached.
        std::future::pending().await
    }
}

/// The longest life of a stream. Then the client opens the next one, so that a connection can end
/// at its age and its caller's rights are judged again.
pub(super) fn stream_age(config: &ActiveConfig) -> Duration {
    Duration::from_secs(config.config.limits.connection_age_seconds.into())
}

#[async_trait]
impl SessionService for SessionHandler {
    async fn open_session(
        &self,
        request: Request<OpenSessionRequest>,
    ) -> Result<Response<OpenSessionResponse>, Status> {
        let caller = LockCaller::of(&request)?;
        let OpenSessionRequest { session_id, duration_micros, grace_micros } = request.into_inner();
        let session = read_session(&session_id)?;
        let terms = Terms::parse(duration_micros, grace_micros)
            .map_err(|rejection| self.services.reject(&caller.config, &rejection))?;
        if self.services.locks.watch(session, &caller.principal).is_none() {
            self.services.check_sessions(&caller)?;
        }
        let open = Open { session, principal: caller.principal.clone(), terms };
        let reply = self.services.submit_lock(&caller.config, caller.caller.clone(), LockCommand::Open(open)).await?;
        // The client of a repeated call counts the duration from this call.
        if reply == LockReply::Done(false) {
            self.services.renew(&caller, session).await?;
        }
        Ok(Response::new(OpenSessionResponse {}))
    }

    async fn renew_session(
        &self,
        request: Request<RenewSessionRequest>,
    ) -> Result<Response<RenewSessionResponse>, Status> {
        let caller = LockCaller::of(&request)?;
        let session = read_session(&request.into_inner().session_id)?;
        let forced = self.services.renew(&caller, session).await?;
        Ok(Response::new(RenewSessionResponse { forced_fences: forced.into_iter().map(|fence| fence.0).collect() }))
    }

    async fn close_session(
        &self,
        request: Request<CloseSessionRequest>,
    ) -> Result<Response<CloseSessionResponse>, Status> {
        let caller = LockCaller::of(&request)?;
        let session = read_session(&request.into_inner().session_id)?;
        let end = End { session, cause: Cause::Close(caller.principal) };
        self.services.submit_lock(&caller.config, caller.caller, LockCommand::End(end)).await?;
        Ok(Response::new(CloseSessionResponse {}))
    }

    type WatchSessionStream = ResponseStream<WatchSessionResponse>;

    async fn watch_session(
        &self,
        request: Request<WatchSessionRequest>,
    ) -> Result<Response<Self::WatchSessionStream>, Status> {
        let caller = LockCaller::of(&request)?;
        let session = read_session(&request.into_inner().session_id)?;
        let host = &self.services.locks;
        let _followed = self.services.follow(session, &caller.principal).await?;
        if host.watch(session, &caller.principal).is_none() {
            self.services.renew(&caller, session).await?;
        }
        let news = host.watch(session, &caller.principal).ok_or_else(errors::session_ended)?;
        let (stopping, age) = (self.stopping.clone(), stream_age(&caller.config));
        Ok(Response::new(Box::pin(watch_stream(news, stopping, age))))
    }

    async fn evict_session(
        &self,
        request: Request<EvictSessionRequest>,
    ) -> Result<Response<EvictSessionResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let session = read_session(&request.into_inner().session_id)?;
        let end = End { session, cause: Cause::Evict };
        self.services.submit_lock(&config, permit.caller(), LockCommand::End(end)).await?;
        Ok(Response::new(EvictSessionResponse {}))
    }
}

/// The stream of a watch: first that the session is watched, then each force of its locks, then the
/// one event that ends it.
fn watch_stream(
    mut news: watch::Receiver<SessionNews>,
    stopping: watch::Receiver<bool>,
    age: Duration,
) -> impl Stream<Item = Result<WatchSessionResponse, Status>> + Send {
    let response = |news: News| Ok(WatchSessionResponse { news: news.into() });
    let told = news.borrow_and_update().forced;
    let moves_at = tokio::time::Instant::now() + age;
    let later = futures_util::stream::unfold(Some((news, stopping, told)), move |watched| async move {
        let (mut news, mut stopping, told) = watched?;
        let event = tokio::select! {
            biased;
            // A dropped sender means that the session has ended, too.
            changed = news.wait_for(|news| news.has_ended || news.forced > told) => changed.ok().map(|news| *news),
            () = stopped(&mut stopping) => return Some((response(News::Moving), None)),
            () = tokio::time::sleep_until(moves_at) => return Some((response(News::Moving), None)),
        };
        match event.filter(|news| !news.has_ended) {
            Some(SessionNews { forced, .. }) => Some((response(News::Forced), Some((news, stopping, forced)))),
            None => Some((response(News::Ended), None)),
        }
    });
    futures_util::StreamExt::chain(futures_util::stream::once(std::future::ready(response(News::Watched))), later)
}
