//! The calls of sessions and locks over any transport. Each method sends one message once.

use leasehold_proto::leasehold::locks::v1 as locks;
use leasehold_proto::leasehold::sessions::v1 as sessions;
use tonic::{Response, Status, Streaming};

use crate::stub::{Stub, Transport};

impl<T: Transport> Stub<T> {
    /// Opens a session.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn open_session(
        &mut self,
        message: sessions::OpenSessionRequest,
    ) -> Result<Response<sessions::OpenSessionResponse>, Status> {
        let request = self.request(message);
        self.sessions.open_session(request).await
    }

    /// Renews a session.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn renew_session(
        &mut self,
        message: sessions::RenewSessionRequest,
    ) -> Result<Response<sessions::RenewSessionResponse>, Status> {
        let request = self.request(message);
        self.sessions.renew_session(request).await
    }

    /// Closes a session.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn close_session(
        &mut self,
        message: sessions::CloseSessionRequest,
    ) -> Result<Response<sessions::CloseSessionResponse>, Status> {
        let request = self.request(message);
        self.sessions.close_session(request).await
    }

    /// Watches a session. The stream has no deadline.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn watch_session(
        &mut self,
        message: sessions::WatchSessionRequest,
    ) -> Result<Response<Streaming<sessions::WatchSessionResponse>>, Status> {
        let request = self.request(message);
        self.sessions.watch_session(request).await
    }

    /// Ends a session of any service.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn evict_session(
        &mut self,
        message: sessions::EvictSessionRequest,
    ) -> Result<Response<sessions::EvictSessionResponse>, Status> {
        let request = self.request(message);
        self.sessions.evict_session(request).await
    }

    /// Acquires a lock if it is free.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn try_acquire_lock(
        &mut self,
        message: locks::TryAcquireLockRequest,
    ) -> Result<Response<locks::TryAcquireLockResponse>, Status> {
        let request = self.request(message);
        self.locks.try_acquire_lock(request).await
    }

    /// Acquires a lock, and waits for it. The stream has no deadline of its own.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn acquire_lock(
        &mut self,
        message: locks::AcquireLockRequest,
    ) -> Result<Response<Streaming<locks::AcquireLockResponse>>, Status> {
        let request = self.request(message);
        self.locks.acquire_lock(request).await
    }

    /// Acquires several locks together, and waits for them. The stream has no deadline of its own.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn acquire_locks(
        &mut self,
        message: locks::AcquireLocksRequest,
    ) -> Result<Response<Streaming<locks::AcquireLocksResponse>>, Status> {
        let request = self.request(message);
        self.locks.acquire_locks(request).await
    }

    /// Leaves the queue of a lock.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn leave_lock(
        &mut self,
        message: locks::LeaveLockRequest,
    ) -> Result<Response<locks::LeaveLockResponse>, Status> {
        let request = self.request(message);
        self.locks.leave_lock(request).await
    }

    /// Releases a lock.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn release_lock(
        &mut self,
        message: locks::ReleaseLockRequest,
    ) -> Result<Response<locks::ReleaseLockResponse>, Status> {
        let request = self.request(message);
        self.locks.release_lock(request).await
    }

    /// Reads a lock.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn get_lock(
        &mut self,
        message: locks::GetLockRequest,
    ) -> Result<Response<locks::GetLockResponse>, Status> {
        let request = self.request(message);
        self.locks.get_lock(request).await
    }

    /// Lists the locks of a namespace.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn list_locks(
        &mut self,
        message: locks::ListLocksRequest,
    ) -> Result<Response<locks::ListLocksResponse>, Status> {
        let request = self.request(message);
        self.locks.list_locks(request).await
    }

    /// Takes a lock from its holder.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn force_lock(
        &mut self,
        message: locks::ForceLockRequest,
    ) -> Result<Response<locks::ForceLockResponse>, Status> {
        let request = self.request(message);
        self.locks.force_lock(request).await
    }

    /// Waits for an orphaned lock, and acquires it for its cleanup. The stream has no deadline of its
    /// own.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn reap_lock(
        &mut self,
        message: locks::ReapLockRequest,
    ) -> Result<Response<Streaming<locks::ReapLockResponse>>, Status> {
        let request = self.request(message);
        self.locks.reap_lock(request).await
    }

    /// Resolves an orphaned lock.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn resolve_orphan(
        &mut self,
        message: locks::ResolveOrphanRequest,
    ) -> Result<Response<locks::ResolveOrphanResponse>, Status> {
        let request = self.request(message);
        self.locks.resolve_orphan(request).await
    }
}
