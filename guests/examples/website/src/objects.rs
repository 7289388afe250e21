//! The objects that a site owns.

use davit_guest::dynamic::Value;
use davit_guest::{Object, Patch, View, value};

use crate::{Spec, Website};

const IMAGE: &str = "nginx:1.29";

#[derive(Default, View)]
pub(crate) struct Server {
    #[view(path = "spec.replicas")]
    replicas: i32,
    #[view(path = "spec.template.spec.containers")]
    containers: Vec<Container>,
    #[view(path = "status.availableReplicas")]
    pub(crate) available: i32,
}

#[derive(Default, View)]
pub(crate) struct Container {
    image: String,
}

/// Whether a Deployment has what its site asks for.
pub(crate) fn is_as(server: &Server, spec: &Spec) -> bool {
    let mut images = server.containers.iter().map(|it| it.image.as_str());
    server.replicas == spec.replicas && images.any(|image| image == IMAGE)
}

/// Applies an owned object: the one that was read, or a new one. The fields of one that was
/// read are taken from whoever has changed them. An object of the name that the site does not own
/// stays as it is.
pub(crate) fn apply<T>(
    api_version: &str,
    kind: &str,
    site: &Object<Website>,
    read: Option<&Object<T>>,
    mut wanted: Value,
) -> Patch {
    let owner = &site.reference;
    wanted.set("apiVersion", api_version.into());
    wanted.set("kind", kind.into());
    let metadata = value!({
        "namespace": (&owner.namespace),
        "name": (&owner.name),
        "ownerReferences": [(owner.owner_reference())],
    });
    wanted.set("metadata", metadata);
    let patch = Patch::apply(&wanted);
    match read {
        Some(read) => patch.only(&read.reference).force(),
        None => patch,
    }
}

/// The fields of the Deployment, without its metadata.
pub(crate) fn deployment(site: &Object<Website>) -> Value {
    let name = site.reference.name.as_str();
    value!({"spec": {
        "replicas": (site.view.spec.replicas),
        "selector": {"matchLabels": {"website": name}},
        "template": {
            "metadata": {"labels": {"website": name}},
            "spec": {
                "containers": [{
                    "name": "server",
                    "image": IMAGE,
                    "volumeMounts": [{"name": "page", "mountPath": "/usr/share/nginx/html"}],
                }],
                "volumes": [{"name": "page", "configMap": {"name": name}}],
            },
        },
    }})
}
