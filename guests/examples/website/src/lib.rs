//! A custom resource: a `Website` owns a `ConfigMap` with its page, and a Deployment to serve it.

use davit_guest::dynamic::Value;
use davit_guest::views::{ContainerImage, Metadata, Status};
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
    containers: Vec<ContainerImage>,
    #[view(path = "status.availableReplicas")]
    available: i32,
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
            .reads_live(resources::DEPLOYMENTS)
            .deletes(resources::DEPLOYMENTS)
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
        let site = cx.watch(SITES).get_by_uid(&item.key);
        let Some(site) = site.filter(|it| !it.view.metadata.is_orphaning()) else {
            return Ok(Decision::done());
        };
        let (owner, asked) = (&site.reference, &site.view);
        if asked.metadata.is_deleting() {
            return Ok(Decision::done().plans(end(cx, &site)?));
        }
        let plan = Plan::new(owner.clone(), OUT_OF_DATE, "its spec asks for this");
        if let Some(patch) = SERVERS_FIRST.ensure(&site, &asked.metadata) {
            // The change of the finalizers enqueues the site again.
            return Ok(Decision::done().plans([plan.patch(patch)]));
        }
        let mut writes = Vec::new();
        let page = cx.watch(PAGES).owned_named(owner, &owner.name);
        if page.as_ref().is_none_or(|it| it.view.html != asked.html) {
            let data = value!({"index.html": (&asked.html)});
            let wanted = value!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
            writes.push(Patch::apply_owned(owner, page.as_ref(), wanted));
        }
        let server = cx.watch(SERVERS).owned_named(owner, &owner.name);
        let image = |it: &ContainerImage| it.image == IMAGE;
        let serves = |it: &Server| it.replicas == asked.replicas && it.containers.iter().any(image);
        if server.as_ref().is_none_or(|it| !serves(&it.view)) {
            let wanted = deployment(&owner.name, asked.replicas);
            writes.push(Patch::apply_owned(owner, server.as_ref(), wanted));
        }
        let conditions = conditions(asked, server.map_or(0, |it| it.view.available), cx.now());
        let patches = conditions.before(writes, &site, &asked.status, item);
        Ok(Decision::done().plans((!patches.is_empty()).then(|| plan.patches(patches))))
    }
}

/// The conditions of a site with what it owns.
fn conditions(site: &Website, available: i32, now: Instant) -> Conditions {
    let counts = format!("{available} of {} replicas are available", site.replicas);
    let former = Conditions::new(&site.status.conditions, site.metadata.generation, now);
    if available >= site.replicas {
        return former.progress(Progress::Current, "Served", counts);
    }
    former.progress(Progress::InProgress, "ServersStart", counts)
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

/// What ends a deleted site: its Deployment, and its finalizer once the API server has none left.
fn end(cx: &Context<'_>, site: &Object<Website>) -> Result<Option<Plan>, Retry> {
    let owner = &site.reference;
    let Some(server) = cx.watch(SERVERS).owned_named(owner, &owner.name) else {
        cx.prove_gone(owner, "apps/v1", "Deployment", &owner.name)?;
        let plan = Plan::new(owner.clone(), DELETED, "its servers have ended");
        let patch = SERVERS_FIRST.remove(&site.view.metadata);
        return Ok(patch.map(|it| plan.patch(it)));
    };
    // It stays until its pods have ended. Another version of it may have lost its owner.
    let options = DeleteOptions::new().propagation(Propagation::Foreground);
    let plan = Plan::new(server.reference, DELETED, "its site ends");
    Ok(Some(
        plan.delete(options.only_version(&server.resource_version)),
    ))
}
