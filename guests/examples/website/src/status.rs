//! What a site's status says.

use davit_guest::views::Condition;
use davit_guest::{Conditions, Context, Object, Progress, View, WorkItem};
use serde::Serialize;

use crate::Website;
use crate::objects::Server;

#[derive(Default, View, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    observed_generation: i64,
    conditions: Vec<Condition>,
}

/// The status, if it is another one than the site has.
pub(crate) fn status(
    cx: &Context<'_>,
    site: &Object<Website>,
    server: Option<&Object<Server>>,
    item: &WorkItem,
) -> Option<Status> {
    let (former, generation) = (&site.view.status, site.view.metadata.generation);
    let available = server.map_or(0, |server| server.view.available);
    let replicas = site.view.spec.replicas;
    let counts = format!("{available} of {replicas} replicas are available");
    let conditions = Conditions::new(&former.conditions, generation, cx.now());
    let conditions = match item.failures.first() {
        Some(it) => conditions.progress(Progress::InProgress, "WriteFailed", &it.failure.message),
        None if available >= replicas => conditions.progress(Progress::Current, "Served", counts),
        None => conditions.progress(Progress::InProgress, "ServersStart", counts),
    };
    let differs = conditions.differ() || former.observed_generation != generation;
    differs.then(|| Status {
        observed_generation: generation,
        conditions: conditions.own(),
    })
}
