//! The calls of queues over any transport. Each method sends one message once.

use leasehold_proto::leasehold::queues::v1 as queues;
use tonic::{Response, Status, Streaming};

use crate::stub::{Stub, Transport};

impl<T: Transport> Stub<T> {
    /// Submits requests.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn submit_requests(
        &mut self,
        message: queues::SubmitRequest,
    ) -> Result<Response<queues::SubmitResponse>, Status> {
        let request = self.request(message);
        self.queues.submit(request).await
    }

    /// Takes the first requests of a lane that is ready.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn take_batch(
        &mut self,
        message: queues::TakeNowRequest,
    ) -> Result<Response<queues::TakeNowResponse>, Status> {
        let request = self.request(message);
        self.queues.take_now(request).await
    }

    /// Takes lanes as they become ready. The stream has no deadline of its own.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn take_batches(
        &mut self,
        message: queues::TakeRequest,
    ) -> Result<Response<Streaming<queues::TakeResponse>>, Status> {
        let request = self.request(message);
        self.queues.take(request).await
    }

    /// Settles the requests of a batch.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn settle_batch(
        &mut self,
        message: queues::SettleRequest,
    ) -> Result<Response<queues::SettleResponse>, Status> {
        let request = self.request(message);
        self.queues.settle(request).await
    }

    /// Notes the progress on a batch.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn note_progress(
        &mut self,
        message: queues::NoteProgressRequest,
    ) -> Result<Response<queues::NoteProgressResponse>, Status> {
        let request = self.request(message);
        self.queues.note_progress(request).await
    }

    /// Withdraws a request that waits.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn withdraw_request(
        &mut self,
        message: queues::WithdrawRequest,
    ) -> Result<Response<queues::WithdrawResponse>, Status> {
        let request = self.request(message);
        self.queues.withdraw(request).await
    }

    /// Submits a request again whose last attempt failed.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn resubmit_request(
        &mut self,
        message: queues::ResubmitRequest,
    ) -> Result<Response<queues::ResubmitResponse>, Status> {
        let request = self.request(message);
        self.queues.resubmit(request).await
    }

    /// Pauses or resumes a queue or a lane.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn pause_queue(
        &mut self,
        message: queues::PauseRequest,
    ) -> Result<Response<queues::PauseResponse>, Status> {
        let request = self.request(message);
        self.queues.pause(request).await
    }

    /// Sets the most lanes of a queue that are taken at a time.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn limit_queue(
        &mut self,
        message: queues::SetLimitRequest,
    ) -> Result<Response<queues::SetLimitResponse>, Status> {
        let request = self.request(message);
        self.queues.set_limit(request).await
    }

    /// Reads a request.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn get_request(
        &mut self,
        message: queues::GetRequestRequest,
    ) -> Result<Response<queues::GetRequestResponse>, Status> {
        let request = self.request(message);
        self.queues.get_request(request).await
    }

    /// Reads a queue.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn get_queue(
        &mut self,
        message: queues::GetQueueRequest,
    ) -> Result<Response<queues::GetQueueResponse>, Status> {
        let request = self.request(message);
        self.queues.get_queue(request).await
    }

    /// Lists requests.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn list_requests(
        &mut self,
        message: queues::ListRequestsRequest,
    ) -> Result<Response<queues::ListRequestsResponse>, Status> {
        let request = self.request(message);
        self.queues.list_requests(request).await
    }

    /// Lists lanes.
    ///
    /// # Errors
    /// The server's refusal, or a broken connection.
    pub async fn list_lanes(
        &mut self,
        message: queues::ListLanesRequest,
    ) -> Result<Response<queues::ListLanesResponse>, Status> {
        let request = self.request(message);
        self.queues.list_lanes(request).await
    }
}
