//! An example of a custom resource: a `Website` owns a `ConfigMap` with its page and a
//! Deployment that serves it.

mod objects;
mod status;

use davit_guest::views::Metadata;
use davit_guest::{
    ConfigError, Context, Controller, Decision, DeleteOptions, Finalizer, Identity, Manifest,
    Object, Patch, Plan, Propagation, QueueName, QueueSpec, Reason, Resource, Retry, View, Watch,
    WatchName, WorkItem, resources, value,
};
use objects::{Server, apply, deployment, is_as};
use serde::de::DeserializeOwned;
use status::{Status, status};

const SITES: WatchName<Website> = WatchName::new("websites");
const PAGES: WatchName<Page> = WatchName::new("pages");
const SERVERS: WatchName<Server> = WatchName::new("servers");
/// The queue of the sites.
pub const QUEUE: QueueName = QueueName::new("websites");
const WEBSITES: Resource = Resource::new("example.com", "v1", "websites");
const OUT_OF_DATE: Reason = Reason::new("out-of-date");
const DELETED: Reason = Reason::new("deleted");
/// The servers of a site end before its page: the garbage collector knows no order.
const SERVERS_FIRST: Finalizer = Finalizer::new("example.com/servers-first");

#[derive(Default, View)]
struct Website {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, View)]
struct Spec {
    html: String,
    replicas: i32,
}

#[derive(Default, View)]
struct Page {
    #[view(path = "data[\"index.html\"]")]
    html: String,
}

/// The controller.
#[derive(Debug)]
pub struct Websites;

davit_guest::export!(Websites);

impl Controller for Websites {
    type Config = Identity;

    fn new(_: Identity) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn manifest(&self) -> Manifest {
        let summary = "Serves each Website with a Deployment.";
        Manifest::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), summary)
            .queue(QueueSpec::new(QUEUE).workers(4))
            .reconciles(Watch::of(SITES, WEBSITES), QUEUE)
            .owns(Watch::of(PAGES, resources::CONFIG_MAPS), QUEUE)
            .owns(Watch::of(SERVERS, resources::DEPLOYMENTS), QUEUE)
            .patches(WEBSITES)
            .patches_status(WEBSITES)
            .applies(resources::CONFIG_MAPS)
            .applies(resources::DEPLOYMENTS)
            .deletes(resources::DEPLOYMENTS)
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
        let Some(site) = cx.watch(SITES).get_by_uid(&item.key) else {
            return Ok(Decision::done());
        };
        let page = owned(cx, PAGES, &site);
        let server = owned(cx, SERVERS, &site);
        let Website { metadata, spec, .. } = &site.view;
        if metadata.is_deleting() {
            return Ok(Decision::done().plans(end(&site, server)));
        }
        let mut plan = Plan::new(
            site.reference.clone(),
            OUT_OF_DATE,
            "its spec asks for this",
        );
        if let Some(patch) = SERVERS_FIRST.ensure(&site, metadata) {
            // The change of the finalizers enqueues the site again.
            return Ok(Decision::done().plans([plan.patch(patch)]));
        }
        if let Some(status) = status(cx, &site, server.as_ref(), item) {
            plan = plan.patch(Patch::apply_status(&site, &status).force());
        }
        if page.as_ref().is_none_or(|page| page.view.html != spec.html) {
            let data = value!({"data": {"index.html": (&spec.html)}});
            plan = plan.patch(apply("v1", "ConfigMap", &site, page.as_ref(), data));
        }
        if !server.as_ref().is_some_and(|it| is_as(&it.view, spec)) {
            let wanted = deployment(&site);
            plan = plan.patch(apply(
                "apps/v1",
                "Deployment",
                &site,
                server.as_ref(),
                wanted,
            ));
        }
        Ok(Decision::done().plans((!plan.steps.is_empty()).then_some(plan)))
    }
}

/// The object of the site's name that the site owns.
fn owned<T: DeserializeOwned>(
    cx: &Context<'_>,
    watch: WatchName<T>,
    site: &Object<Website>,
) -> Option<Object<T>> {
    let mut owned = cx.watch(watch).owned_by(&site.reference);
    owned.find(|it| it.reference.name == site.reference.name)
}

/// What ends a site that is being deleted: its Deployment, then its finalizer.
fn end(site: &Object<Website>, server: Option<Object<Server>>) -> Option<Plan> {
    if let Some(server) = server {
        let plan = Plan::new(server.reference, DELETED, "its site is being deleted");
        // It stays until its pods have ended.
        return Some(plan.delete(DeleteOptions::new().propagation(Propagation::Foreground)));
    }
    let patch = SERVERS_FIRST.remove(&site.view.metadata)?;
    Some(Plan::new(site.reference.clone(), DELETED, "its servers have ended").patch(patch))
}
