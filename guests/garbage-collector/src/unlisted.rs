//! Resources that the cache does not cover: an object of theirs that is not there
//! may exist all the same.

use std::cell::OnceCell;

use davit_guest::{Context, UnlistedResource};

use crate::config::Config;
use crate::view::OBJECTS;

/// The group of the definitions of custom resources. Without them nobody knows
/// which resources exist.
const DEFINITIONS: &str = "apiextensions.k8s.io";

/// The metrics APIs: nothing of theirs is stored, and they are often away.
const NEVER_STORED: [&str; 3] = [
    "metrics.k8s.io",
    "custom.metrics.k8s.io",
    "external.metrics.k8s.io",
];

/// What the cache does not cover, asked for once.
pub(crate) struct Unlisted<'a> {
    config: &'a Config,
    cx: &'a Context<'a>,
    resources: OnceCell<Vec<UnlistedResource>>,
}

impl<'a> Unlisted<'a> {
    pub(crate) fn new(config: &'a Config, cx: &'a Context<'a>) -> Self {
        Self {
            config,
            cx,
            resources: OnceCell::new(),
        }
    }

    /// Whether every resource of a group that exists is in the cache, so that no
    /// other kind of this group does.
    pub(crate) fn covers(&self, group: &str) -> bool {
        let mut resources = self.resources().iter();
        let mut ignored = self.config.ignored_resources.iter();
        resources.all(|it| it.group != group && it.group != DEFINITIONS)
            && ignored.all(|it| it.group != group && it.group != DEFINITIONS)
    }

    /// The first resource for which an owner that waits for its dependents has
    /// to wait.
    pub(crate) fn first(&self) -> Option<&UnlistedResource> {
        let mut resources = self.resources().iter();
        resources.find(|it| {
            self.cx.since(it.since) < self.config.unlisted_timeout
                && !NEVER_STORED.contains(&it.group.as_str())
        })
    }

    fn resources(&self) -> &[UnlistedResource] {
        self.resources
            .get_or_init(|| self.cx.watch(OBJECTS).unlisted())
    }
}
