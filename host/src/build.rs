//! The build of this program.

use davit_engine::WorldVersion;
use serde::Serialize;

/// The name of the metric with the build.
pub const METRIC: &str = "davit_build_info";

/// The build of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Info {
    /// Its version.
    pub version: &'static str,
    /// The commit, from `DAVIT_COMMIT` at build time.
    pub commit: &'static str,
    /// The latest version of the interface that its guests are built for.
    pub interface: &'static str,
    /// `linux`
    pub os: &'static str,
    /// `x86_64`
    pub arch: &'static str,
}

/// The build of this program.
pub const INFO: Info = Info {
    version: env!("CARGO_PKG_VERSION"),
    commit: match option_env!("DAVIT_COMMIT") {
        Some(commit) => commit,
        None => "unknown",
    },
    interface: INTERFACE.as_str(),
    os: std::env::consts::OS,
    arch: std::env::consts::ARCH,
};

const INTERFACE: WorldVersion = {
    let [.., last] = WorldVersion::ALL;
    last
};

/// The version in a page of metrics.
#[must_use]
pub fn version_in(metrics: &str) -> Option<String> {
    let mut lines = metrics.lines();
    let line = lines.find(|line| line.starts_with(METRIC) && line.contains('{'))?;
    let (_, rest) = line.split_once("version=\"")?;
    let (version, _) = rest.split_once('"')?;
    Some(version.to_owned())
}
