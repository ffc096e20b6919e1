//! The protocol of a request: gRPC, or plain HTTP.
//!
//! A web page must not call a server on its reader's machine. A browser sends a POST with
//! `text/plain` to any server. Before a POST with `application/grpc` it asks the server (the Fetch
//! standard, "CORS-safelisted request-header"). This server never agrees. If a page's own host name
//! was redirected to this server's address (DNS rebinding), the browser does not ask. But it sends
//! `Origin`, which no gRPC client sends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, ORIGIN};
use http::{Method, StatusCode};
use hyper::body::Frame;
use tonic::Status;
use tonic::body::Body;

/// True if the request is gRPC: a POST whose content type is `application/grpc`, alone or with
/// parameters or the codec of protobuf, the only one served (gRPC over HTTP/2, "Content-Type").
pub fn is_grpc<B>(request: &http::Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    let rest = content_type.and_then(|value| value.strip_prefix(b"application/grpc"));
    let rest = rest.map(|rest| rest.strip_prefix(b"+proto").unwrap_or(rest));
    request.method() == Method::POST && rest.is_some_and(|rest| matches!(rest.first(), None | Some(b';')))
}

/// The response to a request that must reach no route; `None` if the request may pass.
pub(super) fn refuse<B>(request: &http::Request<B>) -> Option<http::Response<Body>> {
    let (status, message) = match (is_grpc(request), request.method() == Method::POST) {
        (true, _) if request.headers().contains_key(ORIGIN) => {
            (StatusCode::FORBIDDEN, "the call comes from a web page: use a gRPC client, which sends no `origin`")
        }
        (false, true) if request.uri().path() != super::CLASSIFY_HTTP => (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the content type of a gRPC call is not `application/grpc`: use a gRPC client",
        ),
        _ => return None,
    };
    let body = axum::body::Body::from(format!("{message}\n"));
    let mut response = http::Response::new(Body::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    Some(response)
}

/// A body of several messages. When the time for it is over, the body ends, and so the handler ends
/// its stream.
pub(super) struct BoundedBody {
    body: Body,
    end: Option<Pin<Box<dyn Future<Output = Status> + Send>>>,
}

impl BoundedBody {
    pub(super) fn new(body: Body, end: impl Future<Output = Status> + Send + 'static) -> Self {
        Self { body, end: Some(Box::pin(end)) }
    }
}

impl hyper::body::Body for BoundedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        if end.as_mut().poll(cx).is_pending() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            return Poll::Ready(frame);
        }
        self.end = None;
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, path: &str, headers: &[(&str, &str)]) -> http::Request<()> {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn only_a_post_with_the_content_type_of_grpc_is_grpc() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc+proto; charset=utf-8", true),
            ("application/grpc+json", false),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("text/plain", false),
        ] {
            let headers = [("content-type", content_type)];
            assert_eq!(is_grpc(&request(Method::POST, "/a.B/C", &headers)), expected, "{content_type}");
            assert!(!is_grpc(&request(Method::GET, "/a.B/C", &headers)), "{content_type}");
        }
        assert!(!is_grpc(&request(Method::POST, "/a.B/C", &[])));
    }

    #[test]
    fn a_request_of_another_protocol_or_of_a_page_is_refused() {
        let grpc = ("content-type", "application/grpc");
        for (method, path, headers, expected) in [
            (Method::POST, "/a.B/C", &[grpc][..], None),
            (Method::POST, "/a.B/C", &[grpc, ("origin", "http://a.example")], Some(403)),
            (Method::POST, "/a.B/C", &[("content-type", "text/plain")], Some(415)),
            (Method::POST, "/a.B/C", &[], Some(415)),
            (Method::POST, "/v1/classify", &[], None),
            (Method::GET, "/metrics", &[], None),
        ] {
            let status = refuse(&request(method, path, headers)).map(|response| response.status().as_u16());
            assert_eq!(status, expected, "{path} {headers:?}");
        }
    }
}
