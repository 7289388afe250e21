//! An example of a custom resource: a `Website` owns a `ConfigMap` with its page and a
//! Deployment that serves it.

use davit_guest::dynamic::Value;
use davit_guest::views::{Metadata, Status};
use davit_guest::{
    Conditions, ConfigError, Context, Controller, Decision, DeleteOptions, Finalizer, Identity,
    Instant, Manifest, Object, Patch, Plan, Progress, Propagation, QueueName, QueueSpec, Reason,
    Resource, Retry, View, Watch, WatchName, WorkItem, resources, value,
};

const SITES: WatchName<Website> = WatchName::new("websites");
const PAGES: WatchName<Page> = WatchName::new("pages");
const SERVERS: WatchName<Server> = WatchName::new("servers");
/// The queue of the sites.
pub const QUEUE: QueueName = QueueName::new("websites");
const WEBSITES: Resource = Resource::new("example.com", "v1", "websites");
const OUT_OF_DATE: Reason = Reason::new("out-of-date");
const DELETED: Reason = Reason::new("deleted");
const IMAGE: &str = "nginx:1.29";
/// The servers of a site end before its page: the garbage collector knows no order.
const SERVERS_FIRST: Finalizer = Finalizer::new("example.com/servers-first");

#[derive(Default, View)]
struct Website {
    metadata: Metadata,
    #[view(path = "spec.html")]
    html: String,
    #[view(path = "spec.replicas")]
    replicas: i32,
    status: Status,
}

#[derive(Default, View)]
struct Page {
    #[view(path = "data[\"index.html\"]")]
    html: String,
}

#[derive(Default, View)]
struct Server {
    #[view(path = "spec.replicas")]
    replicas: i32,
    #[view(path = "spec.template.spec.containers")]
    containers: Vec<Container>,
    #[view(path = "status.availableReplicas")]
    available: i32,
}

#[derive(Default, View)]
struct Container {
    image: String,
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
        let (owner, asked) = (&site.reference, &site.view);
        let page = cx.watch(PAGES).owned_named(owner, &owner.name);
        let server = cx.watch(SERVERS).owned_named(owner, &owner.name);
        if asked.metadata.is_deleting() {
            return Ok(Decision::done().plans(end(&site, server)));
        }
        let mut plan = Plan::new(owner.clone(), OUT_OF_DATE, "its spec asks for this");
        if let Some(patch) = SERVERS_FIRST.ensure(&site, &asked.metadata) {
            // The change of the finalizers enqueues the site again.
            return Ok(Decision::done().plans([plan.patch(patch)]));
        }
        let available = server.as_ref().map_or(0, |it| it.view.available);
        let status = status(asked, available, item, cx.now());
        plan = plan.patches(status.map(|it| Patch::apply_status(&site, &it).force()));
        if page.as_ref().is_none_or(|it| it.view.html != asked.html) {
            let data = value!({"index.html": (&asked.html)});
            let wanted = value!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
            plan = plan.patch(Patch::apply_owned(owner, page.as_ref(), wanted));
        }
        let image = |it: &Container| it.image == IMAGE;
        let serves = |it: &Server| it.replicas == asked.replicas && it.containers.iter().any(image);
        if server.as_ref().is_none_or(|it| !serves(&it.view)) {
            let wanted = deployment(&owner.name, asked.replicas);
            plan = plan.patch(Patch::apply_owned(owner, server.as_ref(), wanted));
        }
        Ok(Decision::done().plans((!plan.steps.is_empty()).then_some(plan)))
    }
}

/// The status, if it is another one than the site has.
fn status(site: &Website, available: i32, item: &WorkItem, now: Instant) -> Option<Status> {
    let counts = format!("{available} of {} replicas are available", site.replicas);
    let former = Conditions::new(&site.status.conditions, site.metadata.generation, now);
    let conditions = match item.failures.first() {
        Some(it) => former.progress(Progress::InProgress, "WriteFailed", &it.failure.message),
        None if available >= site.replicas => former.progress(Progress::Current, "Served", counts),
        None => former.progress(Progress::InProgress, "ServersStart", counts),
    };
    conditions.status(&site.status)
}

/// The Deployment of a site.
fn deployment(name: &str, replicas: i32) -> Value {
    let mount = value!({"name": "page", "mountPath": "/usr/share/nginx/html"});
    let server = value!({"name": "server", "image": IMAGE, "volumeMounts": [mount]});
    let page = value!({"name": "page", "configMap": {"name": name}});
    let pod = value!({"containers": [server], "volumes": [page]});
    value!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"website": name}},
        "template": {"metadata": {"labels": {"website": name}}, "spec": pod},
    }})
}

/// What ends a site that is being deleted: its Deployment, then its finalizer.
fn end(site: &Object<Website>, server: Option<Object<Server>>) -> Option<Plan> {
    if let Some(server) = server {
        // It stays until its pods have ended.
        let options = DeleteOptions::new().propagation(Propagation::Foreground);
        return Some(Plan::new(server.reference, DELETED, "its site ends").delete(options));
    }
    let patch = SERVERS_FIRST.remove(&site.view.metadata)?;
    Some(Plan::new(site.reference.clone(), DELETED, "its servers have ended").patch(patch))
}
