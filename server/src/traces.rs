//! Traces of calls, which are off by default: one span for each call, sent to a collector by OTLP.
//!
//! A span has the attributes of OpenTelemetry's conventions for RPC, and the times of the call's
//! command in the committer. Like the log, it has no value of a claim. The spans wait in a bounded
//! queue and are sent by a thread of their own; if the collector is away, they are dropped.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::committer::TimesSlot;
use crate::config::{TracesConfig, read_file};

/// The longest time for which a stopping server waits until the last spans are sent.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The gRPC codes that report a fault of the server rather than of the caller (OpenTelemetry's
/// conventions for gRPC, "Server").
const FAULTS: [&str; 6] = ["UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"];

/// The traces can't be sent to the configured collector.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The file with the collector's authority can't be read.
    #[error("`traces.ca`: `{}` can't be read: {error}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The reason that the operating system gave.
        error: io::Error,
    },
    /// The collector's address or authority can't be used.
    #[error("no traces can be sent to `traces.endpoint`: {0}")]
    Exporter(String),
}

/// The traces of a server. Dropping it drops the spans that are not sent yet.
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

/// The span of a call.
pub struct CallSpan {
    span: Span,
    times: TimesSlot,
}

impl Traces {
    /// Checks the collector's settings as a start of the server does.
    ///
    /// # Errors
    /// The address or the authority's certificate is not valid.
    pub fn check(config: &TracesConfig) -> Result<(), TracesError> {
        endpoint(config).map(drop)
    }

    /// Starts to send traces to the configured collector. A collector that is away is no error.
    ///
    /// # Errors
    /// The address or the authority's certificate is not valid.
    pub fn start(config: &TracesConfig) -> Result<Self, TracesError> {
        let unusable = |error: &dyn std::fmt::Display| TracesError::Exporter(error.to_string());
        let channel = endpoint(config)?.connect_lazy();
        let exporter = SpanExporter::builder().with_tonic().with_channel(channel).build();
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let provider = SdkTracerProvider::builder()
            .with_resource(Resource::builder().with_service_name("leasehold").with_attribute(version).build())
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.sample_ratio))))
            .with_batch_exporter(exporter.map_err(|error| unusable(&error))?)
            .build();
        Ok(Self { tracer: provider.tracer("leasehold"), provider, propagator: TraceContextPropagator::new() })
    }

    /// Begins the span of a call, as a child of the span that its `traceparent` names (W3C Trace
    /// Context). `None` if the call is not sampled.
    pub fn begin(&self, method: &'static str, headers: &HeaderMap) -> Option<CallSpan> {
        let parent = self.propagator.extract_with_context(&Context::new(), &Headers(headers));
        let attributes = [KeyValue::new("rpc.system.name", "grpc"), KeyValue::new("rpc.method", method)];
        let builder = self.tracer.span_builder(method).with_kind(SpanKind::Server).with_attributes(attributes);
        let span = self.tracer.build_with_context(builder, &parent);
        span.is_recording().then(|| CallSpan { span, times: TimesSlot::default() })
    }

    /// Sends the last spans. Blocks for two seconds at most.
    pub fn stop(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(STOP_TIMEOUT) {
            tracing::warn!(%error, "the last spans are not sent");
        }
    }
}

/// The collector's endpoint.
fn endpoint(config: &TracesConfig) -> Result<Endpoint, TracesError> {
    let unusable = |error: tonic::transport::Error| TracesError::Exporter(error.to_string());
    let endpoint = Endpoint::from_shared(config.endpoint.clone()).map_err(unusable)?;
    let Some(path) = &config.ca else { return Ok(endpoint) };
    let unreadable = |error| TracesError::Authority { path: path.clone(), error };
    let pem = read_file(path).map_err(unreadable)?;
    if CertificateDer::pem_slice_iter(&pem).next().is_none() {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidData, "it has no certificate")));
    }
    endpoint.tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))).map_err(unusable)
}

impl CallSpan {
    /// The slot into which the committer puts the times of the call's command.
    pub fn times(&self) -> TimesSlot {
        Arc::clone(&self.times)
    }

    /// Ends the span of a call that was answered with this gRPC code.
    pub fn end(mut self, code: &'static str) {
        self.span.set_attribute(KeyValue::new("rpc.response.status_code", code));
        if FAULTS.contains(&code) {
            self.span.set_status(Status::error(code));
        }
        if let Some(times) = self.times.get() {
            let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
            self.span.set_attributes([
                KeyValue::new("leasehold.queue_wait_ms", milliseconds(times.queue_wait)),
                KeyValue::new("leasehold.store_time_ms", milliseconds(times.store_time)),
                KeyValue::new("leasehold.group_commands", i64::try_from(times.group).unwrap_or(i64::MAX)),
            ]);
        }
        self.span.end();
    }
}

/// Lets a propagator of OpenTelemetry read the headers of a request.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}
