//! An operator's configuration.

use serde::de::DeserializeOwned;

use crate::{ConfigError, dynamic, msgpack};

/// MessagePack's empty map.
const EMPTY: &[u8] = &[0x80];
/// MessagePack's nil.
const NIL: &[u8] = &[0xc0];

/// Reads a configuration: a MessagePack map. Nil or no bytes mean the defaults.
pub(crate) fn read<T: DeserializeOwned>(config: &[u8]) -> Result<T, ConfigError> {
    let config = match config {
        [] | NIL => EMPTY,
        config => config,
    };
    msgpack::decode_strictly(config).map_err(|error| ConfigError {
        field: error.path,
        message: error.message,
    })
}

/// The configuration as it was written.
#[derive(Debug)]
pub struct WrittenConfig<'a>(pub(crate) &'a [u8]);

impl WrittenConfig<'_> {
    /// The whole of it. A field that is null is an entry of its map.
    pub fn value(&self) -> Result<dynamic::Value, ConfigError> {
        read(self.0)
    }
}

impl ConfigError {
    /// An error about the value at a path: `terminatedPodThreshold`.
    #[must_use]
    pub fn new(field: &str, message: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Config {
        pod_threshold: i32,
        #[serde(with = "crate::duration")]
        period: Duration,
        rates: Vec<Rate>,
        mode: Mode,
        limit: Option<u32>,
        by_zone: BTreeMap<String, u32>,
    }

    impl Default for Config {
        fn default() -> Self {
            Self {
                pod_threshold: 7,
                period: Duration::from_secs(20),
                rates: Vec::new(),
                mode: Mode::Strict,
                limit: None,
                by_zone: BTreeMap::new(),
            }
        }
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Rate {
        per_second: f64,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum Mode {
        Strict,
        Lax,
    }

    fn parse(config: &serde_json::Value) -> Result<Config, ConfigError> {
        read(&rmp_serde::to_vec_named(config).unwrap())
    }

    #[test]
    fn an_absent_field_has_its_default() {
        assert_eq!(read::<Config>(&[]).unwrap(), Config::default());
        for config in [json!(null), json!({}), json!({"podThreshold": null})] {
            assert_eq!(parse(&config).unwrap(), Config::default(), "{config}");
        }
    }

    #[test]
    fn every_field_is_read() {
        let config = parse(&json!({
            "podThreshold": -1,
            "period": "1m30s",
            "rates": [{"perSecond": 0.5}],
            "mode": "Lax",
            "limit": 3,
            "byZone": {"a": 1},
        }));
        assert_eq!(
            config.unwrap(),
            Config {
                pod_threshold: -1,
                period: Duration::from_secs(90),
                rates: vec![Rate { per_second: 0.5 }],
                mode: Mode::Lax,
                limit: Some(3),
                by_zone: BTreeMap::from([("a".to_owned(), 1)]),
            }
        );
    }

    /// Every error names the path, in an operator's words and not in Rust's.
    #[test]
    fn every_error_names_its_path() {
        const FIELDS: &str =
            "unknown field, expected one of podThreshold, period, rates, mode, limit, byZone";
        for (config, field, message) in [
            (json!({"boundary": 1}), "boundary", FIELDS),
            (json!({"boundary": null}), "boundary", FIELDS),
            (
                json!({"threshold": 1}),
                "threshold",
                &format!("{FIELDS}; did you mean \"podThreshold\"?"),
            ),
            (
                json!({"podThreshold": "1"}),
                "podThreshold",
                "expected a whole number, found \"1\"",
            ),
            (
                json!({"podThreshold": 1.5}),
                "podThreshold",
                "expected a whole number, found a number with a fraction",
            ),
            (
                json!({"podThreshold": 1_u64 << 40}),
                "podThreshold",
                "expected a whole number from -2147483648 to 2147483647, found 1099511627776",
            ),
            (
                json!({"period": 20}),
                "period",
                "expected a duration such as 30s, 10m or 1h30m, found 20",
            ),
            (
                json!({"period": "20"}),
                "period",
                "expected a duration such as 30s, 10m or 1h30m, found \"20\"",
            ),
            (
                json!({"rates": [{"perSecond": 1.0}, {}]}),
                "rates[1].perSecond",
                "it must be set",
            ),
            (
                json!({"rates": [{"perSecond": "x"}]}),
                "rates[0].perSecond",
                "expected a number, found \"x\"",
            ),
            (
                json!({"rates": [{"burst": 1}]}),
                "rates[0].burst",
                "unknown field, expected one of perSecond",
            ),
            (
                json!({"rates": [[1.0]]}),
                "rates[0]",
                "expected a map, found a list",
            ),
            (
                json!({"rates": {}}),
                "rates",
                "expected a list, found a map",
            ),
            (
                json!({"mode": "lax"}),
                "mode",
                "expected one of Strict, Lax, found \"lax\"",
            ),
            (
                json!({"mode": 1}),
                "mode",
                "expected one of Strict, Lax, found 1",
            ),
            (
                json!({"limit": -1}),
                "limit",
                "expected a whole number from 0 to 4294967295, found -1",
            ),
            (
                json!({"byZone": {"a": "1"}}),
                "byZone.a",
                "expected a whole number, found \"1\"",
            ),
            (json!([]), "", "expected a map, found a list"),
            (json!("x"), "", "expected a map, found \"x\""),
        ] {
            let error = parse(&config).unwrap_err();
            assert_eq!(error.field, field, "{config}: {}", error.message);
            assert_eq!(error.message, message, "{config}");
        }
    }
}
