//! Resources that the cache does not cover: their objects may exist even if the
//! cache does not have them.

use std::cell::OnceCell;

use davit_guest::{Context, UnlistedResource};

use crate::config::Config;
use crate::view::OBJECTS;

/// The group of the definitions of custom resources. Without them it is unknown
/// which resources exist.
const DEFINITIONS: &str = "apiextensions.k8s.io";

/// The metrics APIs: they store nothing, and are often unavailable.
const NEVER_STORED: [&str; 3] = [
    "metrics.k8s.io",
    "custom.metrics.k8s.io",
    "external.metrics.k8s.io",
];

/// The resources that the cache does not cover, read once.
pub(crate) struct UnlistedResources<'a> {
    config: &'a Config,
    cx: &'a Context<'a>,
    resources: OnceCell<Vec<UnlistedResource>>,
}

impl<'a> UnlistedResources<'a> {
    pub(crate) fn new(config: &'a Config, cx: &'a Context<'a>) -> Self {
        Self {
            config,
            cx,
            resources: OnceCell::new(),
        }
    }

    /// Whether the cache covers every existing resource of a group, so that no
    /// other kind of this group exists.
    pub(crate) fn covers(&self, group: &str) -> bool {
        let mut resources = self.resources().iter();
        let mut ignored = self.config.ignored_resources.iter();
        resources.all(|it| it.group != group && it.group != DEFINITIONS)
            && ignored.all(|it| it.group != group && it.group != DEFINITIONS)
    }

    /// The first resource that an owner must wait for when it waits for its
    /// dependents.
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
