//! The table of built-in resources: a new kind is one row.

use std::sync::Arc;

use super::{Collection, Generation, Resource, Rules, Subresource};
use crate::access::GROUP;
use crate::defaults;
use crate::name::NameRule;

struct Row {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    subresources: &'static [Sub],
    verbs: &'static [&'static str],
    /// The collection, if it is not named after the resource.
    store: &'static str,
    /// Where etcd has it, if not under the plural.
    etcd: &'static str,
    storage_version: &'static str,
    rules: Rules,
    selectable: &'static [&'static str],
}

/// Name; group, version and kind of its body; verbs.
type Sub = (
    &'static str,
    (&'static str, &'static str, &'static str),
    &'static [&'static str],
);

const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const RW: &[&str] = &["get", "patch", "update"];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
const STREAM: &[&str] = &["create", "get"];

const RULES: Rules = Rules {
    generation: Generation::Unused,
    unconditional_update: true,
    create_on_update: false,
    returns_deleted: false,
    collection: Collection::Delete,
    graceful: false,
    keeps_status: false,
    default: defaults::nothing,
    prepare: defaults::nothing,
    name: NameRule::Subdomain,
};
const SPEC: Rules = Rules {
    generation: Generation::Spec,
    ..RULES
};

/// A namespaced resource of the core group without special rules.
const CORE: Row = Row {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    namespaced: true,
    short: &[],
    categories: &[],
    subresources: &[],
    verbs: ALL,
    store: "",
    etcd: "",
    storage_version: "v1",
    rules: RULES,
    selectable: &[],
};
const APPS: Row = Row {
    group: "apps",
    rules: SPEC,
    categories: &["all"],
    ..CORE
};
const BATCH: Row = Row {
    group: "batch",
    ..APPS
};

/// A review: answered, not stored.
const REVIEW: Row = Row {
    group: "authorization.k8s.io",
    namespaced: false,
    verbs: &["create"],
    storage_version: "",
    ..CORE
};
const RBAC: Row = Row {
    group: GROUP,
    rules: Rules {
        name: NameRule::PathSegment,
        ..RULES
    },
    ..CORE
};

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const fn status(kind: &'static str) -> Sub {
    ("status", ("", "", kind), RW)
}

const SCALE: Sub = ("scale", ("autoscaling", "v1", "Scale"), RW);

#[rustfmt::skip] // a row a resource, to be read as a table
const ROWS: &[Row] = &[
    Row { plural: "bindings", singular: "binding", kind: "Binding", verbs: &["create"], storage_version: "", ..CORE },
    Row { plural: "componentstatuses", singular: "componentstatus", kind: "ComponentStatus", namespaced: false, short: &["cs"], verbs: &["get", "list"], storage_version: "", ..CORE },
    Row { plural: "configmaps", singular: "configmap", kind: "ConfigMap", short: &["cm"], ..CORE },
    Row { plural: "endpoints", singular: "endpoints", kind: "Endpoints", short: &["ep"], etcd: "services/endpoints",
          rules: Rules { create_on_update: true, ..RULES }, ..CORE },
    Row { plural: "events", singular: "event", kind: "Event", short: &["ev"], selectable: EVENT_FIELDS,
          rules: Rules { create_on_update: true, collection: Collection::Unsupported, ..RULES }, ..CORE },
    Row { plural: "limitranges", singular: "limitrange", kind: "LimitRange", short: &["limits"], ..CORE },
    Row { plural: "namespaces", singular: "namespace", kind: "Namespace", namespaced: false, short: &["ns"], selectable: &["status.phase"],
          verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
          subresources: &[("finalize", ("", "", "Namespace"), &["update"]), status("Namespace")],
          rules: Rules { default: defaults::namespace, prepare: defaults::new_namespace, name: NameRule::Label, ..RULES }, ..CORE },
    Row { plural: "nodes", singular: "node", kind: "Node", namespaced: false, short: &["no"], etcd: "minions", selectable: &["spec.unschedulable"],
          subresources: &[("proxy", ("", "", "NodeProxyOptions"), PROXY), status("Node")],
          rules: Rules { keeps_status: true, default: defaults::node, ..RULES }, ..CORE },
    Row { plural: "persistentvolumeclaims", singular: "persistentvolumeclaim", kind: "PersistentVolumeClaim", short: &["pvc"],
          subresources: &[status("PersistentVolumeClaim")],
          rules: Rules { returns_deleted: true, prepare: defaults::new_volume_or_claim, ..RULES }, ..CORE },
    Row { plural: "persistentvolumes", singular: "persistentvolume", kind: "PersistentVolume", namespaced: false, short: &["pv"],
          subresources: &[status("PersistentVolume")],
          rules: Rules { returns_deleted: true, prepare: defaults::new_volume_or_claim, ..RULES }, ..CORE },
    Row { plural: "pods", singular: "pod", kind: "Pod", short: &["po"], categories: &["all"],
          selectable: &["spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
                        "status.phase", "status.podIP", "status.nominatedNodeName"],
          subresources: &[
              ("attach", ("", "", "PodAttachOptions"), STREAM), ("binding", ("", "", "Binding"), &["create"]),
              ("ephemeralcontainers", ("", "", "Pod"), RW), ("eviction", ("policy", "v1", "Eviction"), &["create"]),
              ("exec", ("", "", "PodExecOptions"), STREAM), ("log", ("", "", "Pod"), &["get"]),
              ("portforward", ("", "", "PodPortForwardOptions"), STREAM), ("proxy", ("", "", "PodProxyOptions"), PROXY),
              ("resize", ("", "", "Pod"), RW), status("Pod"),
          ],
          rules: Rules { generation: Generation::Spec, graceful: true, returns_deleted: true,
                         default: defaults::pod, prepare: defaults::new_pod, ..RULES }, ..CORE },
    Row { plural: "podtemplates", singular: "podtemplate", kind: "PodTemplate",
          rules: Rules { returns_deleted: true, generation: Generation::Spec, default: defaults::pod_template, ..RULES }, ..CORE },
    Row { plural: "replicationcontrollers", singular: "replicationcontroller", kind: "ReplicationController", short: &["rc"], categories: &["all"],
          selectable: &["status.replicas"], etcd: "controllers", subresources: &[SCALE, status("ReplicationController")],
          rules: Rules { collection: Collection::Orphan, default: defaults::replication_controller, prepare: defaults::no_status_yet, ..SPEC }, ..CORE },
    Row { plural: "resourcequotas", singular: "resourcequota", kind: "ResourceQuota", short: &["quota"], subresources: &[status("ResourceQuota")],
          rules: Rules { returns_deleted: true, ..RULES }, ..CORE },
    Row { plural: "secrets", singular: "secret", kind: "Secret", selectable: &["type"], rules: Rules { default: defaults::secret, ..RULES }, ..CORE },
    Row { plural: "serviceaccounts", singular: "serviceaccount", kind: "ServiceAccount", short: &["sa"],
          subresources: &[("token", ("authentication.k8s.io", "v1", "TokenRequest"), &["create"])],
          rules: Rules { returns_deleted: true, ..RULES }, ..CORE },
    Row { plural: "services", singular: "service", kind: "Service", short: &["svc"], categories: &["all"], etcd: "services/specs",
          selectable: &["spec.clusterIP", "spec.type"], subresources: &[("proxy", ("", "", "ServiceProxyOptions"), PROXY), status("Service")],
          rules: Rules { returns_deleted: true, default: defaults::service, name: NameRule::Label1035, ..RULES }, ..CORE },

    Row { plural: "controllerrevisions", singular: "controllerrevision", kind: "ControllerRevision", categories: &[], rules: RULES, ..APPS },
    Row { plural: "daemonsets", singular: "daemonset", kind: "DaemonSet", short: &["ds"], subresources: &[status("DaemonSet")],
          rules: Rules { default: defaults::daemon_set, prepare: defaults::new_daemon_set, ..SPEC }, ..APPS },
    Row { plural: "deployments", singular: "deployment", kind: "Deployment", short: &["deploy"], subresources: &[SCALE, status("Deployment")],
          rules: Rules { generation: Generation::SpecOrAnnotations, default: defaults::deployment, ..SPEC }, ..APPS },
    Row { plural: "replicasets", singular: "replicaset", kind: "ReplicaSet", short: &["rs"], subresources: &[SCALE, status("ReplicaSet")],
          rules: Rules { default: defaults::replica_set, prepare: defaults::no_status_yet, ..SPEC }, ..APPS },
    Row { plural: "statefulsets", singular: "statefulset", kind: "StatefulSet", short: &["sts"], subresources: &[SCALE, status("StatefulSet")],
          rules: Rules { default: defaults::stateful_set, prepare: defaults::no_status_yet, ..SPEC }, ..APPS },

    Row { plural: "cronjobs", singular: "cronjob", kind: "CronJob", short: &["cj"], subresources: &[status("CronJob")], rules: Rules { default: defaults::cron_job, ..SPEC }, ..BATCH },
    Row { plural: "jobs", singular: "job", kind: "Job", subresources: &[status("Job")], selectable: &["status.successful"],
          rules: Rules { collection: Collection::Orphan, default: defaults::job, prepare: defaults::new_job, ..SPEC }, ..BATCH },

    Row { group: "authentication.k8s.io", plural: "selfsubjectreviews", singular: "selfsubjectreview", kind: "SelfSubjectReview", ..REVIEW },
    Row { group: "authentication.k8s.io", plural: "tokenreviews", singular: "tokenreview", kind: "TokenReview", ..REVIEW },
    Row { plural: "localsubjectaccessreviews", singular: "localsubjectaccessreview", kind: "LocalSubjectAccessReview", namespaced: true, ..REVIEW },
    Row { plural: "selfsubjectaccessreviews", singular: "selfsubjectaccessreview", kind: "SelfSubjectAccessReview", ..REVIEW },
    Row { plural: "selfsubjectrulesreviews", singular: "selfsubjectrulesreview", kind: "SelfSubjectRulesReview", ..REVIEW },
    Row { plural: "subjectaccessreviews", singular: "subjectaccessreview", kind: "SubjectAccessReview", ..REVIEW },

    Row { group: "coordination.k8s.io", plural: "leases", singular: "lease", kind: "Lease",
          rules: Rules { unconditional_update: false, create_on_update: true, ..RULES }, ..CORE },
    Row { group: "discovery.k8s.io", plural: "endpointslices", singular: "endpointslice", kind: "EndpointSlice", ..CORE },
    Row { group: "events.k8s.io", plural: "events", singular: "event", kind: "Event", short: &["ev"], store: "events",
          selectable: EVENT_FIELDS,
          rules: Rules { create_on_update: true, collection: Collection::Unsupported, ..RULES }, ..CORE },
    Row { group: "policy", plural: "poddisruptionbudgets", singular: "poddisruptionbudget", kind: "PodDisruptionBudget", short: &["pdb"],
          subresources: &[status("PodDisruptionBudget")],
          rules: Rules { unconditional_update: false, prepare: defaults::no_status_yet, ..SPEC }, ..CORE },
    Row { kind: "ClusterRoleBinding", plural: "clusterrolebindings", singular: "clusterrolebinding", namespaced: false,
          rules: Rules { default: defaults::role_binding, ..RBAC.rules }, ..RBAC },
    Row { kind: "ClusterRole", plural: "clusterroles", singular: "clusterrole", namespaced: false, ..RBAC },
    Row { kind: "RoleBinding", plural: "rolebindings", singular: "rolebinding",
          rules: Rules { default: defaults::role_binding, ..RBAC.rules }, ..RBAC },
    Row { kind: "Role", plural: "roles", singular: "role", ..RBAC },
    Row { group: "scheduling.k8s.io", plural: "priorityclasses", singular: "priorityclass", kind: "PriorityClass", namespaced: false, short: &["pc"],
          rules: Rules { generation: Generation::Spec, default: defaults::priority_class, ..RULES }, ..CORE },
    Row { group: "internal.apiserver.k8s.io", version: "v1alpha1", storage_version: "v1alpha1", plural: "storageversions", singular: "storageversion",
          kind: "StorageVersion", namespaced: false, subresources: &[status("StorageVersion")],
          rules: Rules { unconditional_update: false, name: NameRule::StorageVersion, ..RULES }, ..CORE },
    Row { group: "apiextensions.k8s.io", plural: "customresourcedefinitions", singular: "customresourcedefinition", kind: "CustomResourceDefinition",
          namespaced: false, short: &["crd", "crds"], categories: &["api-extensions"], subresources: &[status("CustomResourceDefinition")],
          etcd: "apiextensions.k8s.io/customresourcedefinitions",
          rules: Rules { unconditional_update: false, default: defaults::definition, prepare: defaults::new_definition, ..SPEC }, ..CORE },
];

/// The built-in resources, in discovery's order of groups.
#[must_use]
pub fn builtin() -> Vec<Resource> {
    ROWS.iter().map(Row::resource).collect()
}

impl Row {
    fn resource(&self) -> Resource {
        let store: Arc<str> = if self.store.is_empty() {
            crate::status::qualify(self.plural, self.group).into()
        } else {
            self.store.into()
        };
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Resource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            plural: self.plural.to_owned(),
            singular: self.singular.to_owned(),
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            namespaced: self.namespaced,
            short_names: owned(self.short),
            categories: owned(self.categories),
            subresources: self.subresources.iter().map(subresource).collect(),
            verbs: self.verbs.to_vec(),
            store,
            etcd_prefix: if self.etcd.is_empty() {
                self.plural
            } else {
                self.etcd
            }
            .to_owned(),
            storage_version: self.storage_version.to_owned(),
            rules: self.rules,
            selectable: owned(self.selectable),
            custom: None,
        }
    }
}

fn subresource((name, (group, version, kind), verbs): &Sub) -> Subresource {
    Subresource {
        name: (*name).to_owned(),
        kind: (
            (*group).to_owned(),
            (*version).to_owned(),
            (*kind).to_owned(),
        ),
        verbs: verbs.to_vec(),
    }
}
