//! The run of a verb: its connection, and the form of its output.

use std::io;
use std::time::Instant;

use clap::Args;
use leasehold_client::Stub;
use tonic::transport::Channel;

use crate::connection::Connection;
use crate::error::CliError;
use crate::obstacle;

/// Arguments of a verb, with the options of its connection.
#[derive(Clone, Debug, Args)]
pub struct Call<A: Args> {
    #[command(flatten)]
    args: A,
    #[command(flatten)]
    connection: Connection,
}

/// The connection of a running verb, and the form of its output.
pub(crate) struct Session<'a> {
    pub(crate) connection: &'a Connection,
    /// True if the verb's answer is written as JSON.
    pub(crate) json: bool,
}

impl<A: Args> Call<A> {
    /// Runs the function `verb`. If the connection fails, another TLS handshake looks for the
    /// fault, and the function returns the fault as the error.
    pub(crate) async fn run(
        self,
        json: bool,
        verb: impl AsyncFnOnce(&Session<'_>, A) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let start = Instant::now();
        match verb(&Session { connection: &self.connection, json }, self.args).await {
            // A broken pipe is no error: the reader of the output has ended, as in `leasehold
            // leases | head`.
            Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) if error.is_of_connection() => {
                let left = self.connection.timeout().saturating_sub(start.elapsed());
                Err(obstacle::explain(&self.connection, left).await.unwrap_or(error))
            }
            result => result.map_err(|error| error.with_certificate(self.connection.cert.as_deref())),
        }
    }
}

impl Session<'_> {
    pub(crate) async fn open(&self) -> Result<Stub<Channel>, CliError> {
        self.connection.open().await
    }
}
