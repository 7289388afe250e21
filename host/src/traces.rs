//! The traces of decisions: sends their spans to a collector by OTLP over HTTP.
//!
//! Traces never hold the host up. Spans wait in a queue of bounded length; those that find
//! it full are dropped and counted, and so are those of a request that the collector does
//! not take.

mod client;
mod export;

use std::fmt;
use std::str::FromStr;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use reqwest::Url;

pub use export::{SpanQueue, TraceError, TraceExport};

use crate::build;

/// Where traces are sent, and how many.
#[derive(Clone, Debug)]
pub struct TraceSettings {
    /// The collector.
    pub endpoint: CollectorUrl,
    /// Which decisions are traced.
    pub ratio: SampleRatio,
    /// Identifies this host among all that send traces.
    pub instance: String,
}

impl TraceSettings {
    /// What the spans of this host are about. `OTEL_RESOURCE_ATTRIBUTES` may add to it.
    fn resource(&self) -> Resource {
        Resource::builder_empty()
            .with_detector(Box::new(EnvResourceDetector::new()))
            .with_attributes([
                KeyValue::new("service.name", "davit"),
                KeyValue::new("service.version", build::INFO.version),
                KeyValue::new("service.instance.id", self.instance.clone()),
            ])
            .build()
    }
}

/// The address of a collector, without the path of the traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl(Url);

impl CollectorUrl {
    /// The address that takes traces.
    fn of_traces(&self) -> String {
        let base = self.0.as_str().trim_end_matches('/');
        format!("{base}/v1/traces")
    }
}

impl FromStr for CollectorUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("\"{text}\" {why}, such as http://localhost:4318");
        let url: Url = text
            .parse()
            .map_err(|_| wrong("is not the URL of a collector"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(wrong("is not an address for OTLP over HTTP"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("must end with its path"));
        }
        Ok(Self(url))
    }
}

impl fmt::Display for CollectorUrl {
    /// Without a password, because the log has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.0.clone();
        // A URL with a host may have them.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.fmt(f)
    }
}

/// The share of decisions that are traced, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleRatio(f64);

impl SampleRatio {
    /// All of them.
    pub const ALL: Self = Self(1.0);

    /// Whether the trace with this id is sent. Every host decides the same about it.
    #[must_use]
    pub fn has(self, trace: [u8; 16]) -> bool {
        // The lower half, as OpenTelemetry's own sampler.
        let place = (u128::from_be_bytes(trace) & u128::from(u64::MAX)) >> 11;
        // Both have 53 bits, so that the product is exact.
        #[allow(clippy::cast_precision_loss, reason = "a number of 53 bits is exact")]
        let place = place as f64;
        place < self.0 * 9_007_199_254_740_992.0
    }
}

impl FromStr for SampleRatio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Self(ratio)),
            _ => Err(format!("\"{text}\" is not a number from 0 to 1")),
        }
    }
}

impl fmt::Display for SampleRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_has_an_address_for_http() {
        for (text, traces) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            (
                "https://otel.example.com/",
                "https://otel.example.com/v1/traces",
            ),
            (
                "https://otel.example.com/davit",
                "https://otel.example.com/davit/v1/traces",
            ),
        ] {
            let url: CollectorUrl = text.parse().unwrap();
            assert_eq!(url.of_traces(), traces);
        }
        for text in [
            "",
            "collector:4318",
            "grpc://collector:4317",
            "http://c/?a=b",
        ] {
            let error = text.parse::<CollectorUrl>().unwrap_err();
            assert!(error.contains("such as http://localhost:4318"), "{error}");
        }
        let url: CollectorUrl = "https://user:hunter2@c/".parse().unwrap();
        assert_eq!(url.to_string(), "https://c/", "the log has no password");
        assert!(url.of_traces().contains("hunter2"));
    }

    #[test]
    fn a_ratio_takes_its_share_of_the_traces() {
        let traces = (0..10_000_u64).map(|number| {
            let mut id = [0; 16];
            id[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            id
        });
        let traces: Vec<[u8; 16]> = traces.collect();
        for (ratio, expected) in [
            ("0", 0..=0),
            ("0.25", 2_400..=2_600),
            ("1", 10_000..=10_000),
        ] {
            let ratio: SampleRatio = ratio.parse().unwrap();
            let sampled = traces.iter().filter(|id| ratio.has(**id)).count();
            assert!(expected.contains(&sampled), "{ratio}: {sampled}");
        }
        assert!("1".parse::<SampleRatio>().unwrap().has([0xff; 16]));
        for text in ["", "-0.1", "1.1", "NaN", "half"] {
            assert!(text.parse::<SampleRatio>().is_err(), "{text}");
        }
    }
}
