//! The HTTP client of the collector: its time and the size of its answers are bounded, and
//! it remembers why a request failed, which OTLP's exporter does not say.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use davit_core::failure::chain;
use hyper::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use reqwest::redirect::Policy;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of an answer that are read.
const MOST_BYTES: usize = 64 << 10;

/// Sends batches to the collector. Copies share the last failure.
#[derive(Clone, Debug)]
pub(super) struct CollectorClient {
    client: reqwest::Client,
    failure: Arc<Mutex<Option<String>>>,
}

impl CollectorClient {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        // Fails if a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .redirect(Policy::none())
            .build()?;
        Ok(Self {
            client,
            failure: Arc::default(),
        })
    }

    /// Why the last request had no answer; none if it had one.
    pub(super) fn take_failure(&self) -> Option<String> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take()
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let request = self
            .client
            .request(parts.method, parts.uri.to_string())
            .headers(parts.headers)
            .body(body);
        let mut answer = request.send().await?;
        let mut response = Response::builder().status(answer.status());
        if let Some(headers) = response.headers_mut() {
            headers.clone_from(answer.headers());
        }
        let mut body = BytesMut::new();
        while let Some(part) = answer.chunk().await? {
            body.extend_from_slice(&part);
            if body.len() > MOST_BYTES {
                return Err(format!("the answer has more than {MOST_BYTES} bytes").into());
            }
        }
        Ok(response.body(body.freeze())?)
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.exchange(request).await;
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        *failure = answer.as_ref().err().map(|error| chain(&**error));
        answer
    }
}
