//! The fields that a guest reads, checked against Kubernetes' built-in kinds.

use davit_kinds::{
    Kind, Type, UnknownField, in_words, is_of_metadata, kind, kind_at, resource_of_kind,
};

use crate::bindings::davit::controller::manifests::Watch;
use crate::{ApiResource, Manifest, Source};

/// The first index by which nothing is ever found, as a sentence: it is over an object or a list.
pub(super) fn empty_index(manifest: &Manifest) -> Option<String> {
    let mut problems = manifest.watches.iter().filter_map(|watch| {
        let (path, compound) = compound(watch)?;
        let name = &watch.name;
        Some(format!(
            "an index of the watch \"{name}\" is over \"{path}\", which is {compound}: it finds \
             nothing by one. Name a text, a number or a boolean in it"
        ))
    });
    problems.next()
}

/// Whether there is a value, and whether there is none, an index also knows of objects and lists.
fn compound(watch: &Watch) -> Option<(&str, &'static str)> {
    let objects = Objects::of_source(&watch.source);
    let indexes = watch.indexes.iter();
    let by_value = indexes.filter(|index| !index.presence && !index.unset);
    let mut found =
        by_value.filter_map(|index| Some((index.path.as_str(), objects.compound(&index.path)?)));
    found.next()
}

/// The first declared field that the kind of its watch does not have, as a sentence.
pub(super) fn unknown_field(manifest: &Manifest) -> Option<String> {
    let mut problems = manifest.watches.iter().filter_map(|watch| {
        let (path, unknown) = unknown(watch)?;
        let name = &watch.name;
        Some(format!(
            "the watch \"{name}\" reads \"{path}\", but {unknown}"
        ))
    });
    problems.next()
}

fn unknown(watch: &Watch) -> Option<(&str, UnknownField)> {
    let indexes = watch.indexes.iter();
    let indexed = indexes.flat_map(|index| std::iter::once(&index.path).chain(&index.order));
    Objects::of_source(&watch.source).unknown(watch.fields.iter().chain(indexed))
}

/// The first field of a live read that none of these objects has, as a sentence. One view may
/// be of a node and of its lease: each has some of the fields.
pub(super) fn unknown_of_live_read(objects: &[Objects], fields: &[String]) -> Option<String> {
    let mut problems = fields.iter().filter_map(|path| {
        let mut unknown = objects.iter().map(|it| it.check(path));
        let first = unknown.next()??;
        let is_of_none = unknown.all(|it| it.is_some());
        is_of_none.then(|| format!("a live read asks for \"{path}\", but {first}"))
    });
    problems.next()
}

/// The objects that a guest reads, in the version in which it reads them.
pub(super) struct Objects {
    /// None if the kind is not built in. Then only its metadata is known.
    kind: Option<Kind>,
    name: String,
}

impl Objects {
    /// The objects of a resource.
    pub(super) fn of_resource(resource: &ApiResource) -> Self {
        let ApiResource {
            group,
            version,
            plural,
        } = resource;
        Self {
            kind: kind_at(group, version, plural),
            name: in_words(group, version, plural),
        }
    }

    /// The objects of a kind.
    pub(super) fn of_kind(api_version: &str, kind: &str) -> Self {
        Self {
            kind: resource_of_kind(api_version, kind),
            name: format!("{kind} ({api_version})"),
        }
    }

    fn of_source(source: &Source) -> Self {
        match source {
            Source::One(resource) => Self::of_resource(resource),
            // Only metadata can be read of it.
            Source::EveryDeletable(_) => Self {
                kind: None,
                name: "an object's metadata".to_owned(),
            },
        }
    }

    fn unknown<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a String>,
    ) -> Option<(&'a str, UnknownField)> {
        let mut unknown = paths
            .into_iter()
            .filter_map(|path| Some((path.as_str(), self.check(path)?)));
        unknown.next()
    }

    fn check(&self, path: &str) -> Option<UnknownField> {
        let unknown = self.at(path)?.err()?;
        let kind = match &self.kind {
            Some(_) => unknown.kind,
            None => self.name.clone(),
        };
        Some(UnknownField { kind, ..unknown })
    }

    /// What the values at a path are, if they are no texts, numbers or booleans.
    fn compound(&self, path: &str) -> Option<&'static str> {
        self.at(path)?.ok()?.compound()
    }

    /// The type at a path; none if nothing is known of it.
    fn at(&self, path: &str) -> Option<Result<Type, UnknownField>> {
        if let Some(kind) = &self.kind {
            return Some(kind.check(path));
        }
        if !is_of_metadata(path) {
            return None;
        }
        // Every kind has the same metadata.
        Some(kind("", "namespaces")?.check(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Harness;
    use crate::{
        ConfigError, Context, Controller, Decision, Identity, Index, IndexName, ListRequest,
        ObjectRef, Retry, View, WatchName, WorkItem, resources,
    };

    type Watch = crate::Watch<Identity>;

    const PODS: WatchName<Identity> = WatchName::new("pods");

    fn watch(group: &str, version: &str, plural: &str, fields: &[&str]) -> Watch {
        let fields = fields.iter().map(ToString::to_string).collect();
        Watch::of_fields(PODS, ApiResource::new(group, version, plural), fields)
    }

    fn problem(watch: Watch) -> Option<String> {
        unknown_field(&Manifest::new("a", "1", "A guest.").watch(watch))
    }

    #[test]
    fn a_field_that_the_kind_does_not_have_is_reported() {
        assert_eq!(problem(watch("", "v1", "pods", &["status.phase"])), None);
        assert_eq!(
            problem(watch("", "v1", "pods", &["spec", "status.fase"])).unwrap(),
            "the watch \"pods\" reads \"status.fase\", but pods (v1) has no field \
             \"status.fase\"; did you mean \"status.phase\"?"
        );
        let index = Index::new(IndexName::new("a"), "spec.nodeName").order_by("metadata.ages");
        let indexed = watch("", "v1", "pods", &[]).index(index);
        let problem = problem(indexed).unwrap();
        assert!(problem.contains("no field \"metadata.ages\""), "{problem}");
    }

    #[test]
    fn an_index_over_an_object_or_a_list_is_reported() {
        let problem = |watch| empty_index(&Manifest::new("a", "1", "A guest.").watch(watch));
        let over = |path: &str| Index::new(IndexName::new("a"), path);
        let of_pods = |index| problem(watch("", "v1", "pods", &[]).index(index));
        for path in [
            "spec.volumes[*].configMap.name",
            "spec.hostNetwork",
            "spec.priority",
            "metadata.labels[\"app\"]",
        ] {
            assert_eq!(of_pods(over(path)), None, "{path}");
        }
        assert_eq!(
            of_pods(over("spec.volumes[*].configMap")).unwrap(),
            "an index of the watch \"pods\" is over \"spec.volumes[*].configMap\", which is an \
             object: it finds nothing by one. Name a text, a number or a boolean in it"
        );
        for path in ["metadata.ownerReferences", "metadata.labels"] {
            assert!(of_pods(over(path)).is_some(), "{path}");
            assert_eq!(of_pods(over(path).presence()), None, "{path}");
            assert_eq!(of_pods(over(path).unset()), None, "{path}");
            let custom = watch("example.com", "v1", "jobs", &[]).index(over(path));
            assert!(problem(custom).is_some(), "{path}");
        }
        let free = watch("example.com", "v1", "jobs", &[]).index(over("spec"));
        assert_eq!(problem(free), None);
    }

    #[test]
    fn the_version_of_the_watch_decides() {
        let scalers = |version| {
            let fields = ["spec.targetCPUUtilizationPercentage"];
            problem(watch(
                "autoscaling",
                version,
                "horizontalpodautoscalers",
                &fields,
            ))
        };
        assert_eq!(scalers("v1"), None);
        assert!(scalers("v2").is_some());
    }

    #[test]
    fn of_kinds_that_are_not_built_in_only_the_metadata_is_checked() {
        assert_eq!(problem(watch("example.com", "v1", "jobs", &["a"])), None);
        assert_eq!(problem(watch("", "v0", "pods", &["a"])), None);
        let fields = [
            "metadatas.a",
            "metadata.labels[\"a\"]",
            "metadata.finalisers",
        ];
        assert_eq!(
            problem(watch("example.com", "v1", "jobs", &fields)).unwrap(),
            "the watch \"pods\" reads \"metadata.finalisers\", but jobs.example.com (v1) has no \
             field \"metadata.finalisers\"; did you mean \"metadata.finalizers\"?"
        );
    }

    #[test]
    fn metadata_of_every_kind_is_checked() {
        let of = |field: &str| {
            let index = Index::new(IndexName::new("a"), field);
            problem(Watch::every_deletable(PODS, Vec::new()).index(index))
        };
        assert_eq!(of("metadata.ownerReferences[*].uid"), None);
        let problem = of("metadata.owner").unwrap();
        assert!(
            problem.contains("an object's metadata has no field"),
            "{problem}"
        );
    }

    struct Misspelled;

    impl Controller for Misspelled {
        type Config = Identity;

        fn new(_: Identity) -> Result<Self, ConfigError> {
            Ok(Self)
        }

        fn manifest(&self) -> Manifest {
            Manifest::new("misspelled", "1", "Reads a field that no pod has.").watch(watch(
                "",
                "v1",
                "pods",
                &["spec.nodName"],
            ))
        }

        fn reconcile(&self, _: &Context<'_>, _: &WorkItem) -> Result<Decision, Retry> {
            Ok(Decision::done())
        }
    }

    #[test]
    #[should_panic(expected = "did you mean \"spec.nodeName\"?")]
    fn a_harness_refuses_a_guest_that_reads_an_unknown_field() {
        drop(Harness::<Misspelled>::new(&serde_json::Value::Null));
    }

    /// It declares nothing.
    struct Reader;

    impl Controller for Reader {
        type Config = Identity;

        fn new(_: Identity) -> Result<Self, ConfigError> {
            Ok(Self)
        }

        fn manifest(&self) -> Manifest {
            Manifest::new("reader", "1", "Reads live.")
        }

        fn reconcile(&self, _: &Context<'_>, _: &WorkItem) -> Result<Decision, Retry> {
            Ok(Decision::done())
        }
    }

    #[derive(Default, View)]
    struct Node {
        #[view(path = "spec.unschedulabel")]
        _cordoned: bool,
    }

    fn read(read: impl Fn(&Context<'_>)) {
        let harness = Harness::<Reader>::new(&serde_json::Value::Null).unwrap();
        let () = harness.observe(|_, cx| read(cx));
    }

    #[test]
    #[should_panic(
        expected = "a live read asks for \"spec.unschedulabel\", but nodes (v1) has no field \
                    \"spec.unschedulabel\"; did you mean \"spec.unschedulable\"?"
    )]
    fn a_live_read_of_an_unknown_field_ends_the_test() {
        read(|cx| {
            let nodes = ["a", "b"].map(|name| ObjectRef::named("v1", "Node", "", name));
            drop(cx.live_get::<Node>(&nodes));
        });
    }

    #[test]
    #[should_panic(expected = "nodes (v1) has no field \"spec.unschedulabel\"")]
    fn a_live_list_of_an_unknown_field_ends_the_test() {
        read(|cx| {
            drop(cx.live_list::<Node>(ListRequest {
                resource: resources::NODES.into(),
                namespace: String::new(),
                label_selector: String::new(),
                field_selector: String::new(),
                fields: Vec::new(),
            }));
        });
    }

    #[test]
    #[should_panic(expected = "Site (example.com/v1) has no field \"metadata.finalisers\"")]
    fn a_live_read_of_unknown_metadata_ends_the_test() {
        read(|cx| {
            let site = ObjectRef::named("example.com/v1", "Site", "", "a");
            let fields = ["spec.any", "metadata.finalisers"].map(str::to_owned);
            drop(cx.live_fields::<Identity>(&site, &fields));
        });
    }

    #[derive(Default, View)]
    struct Signs {
        #[view(path = "spec.unschedulable")]
        _cordoned: bool,
        #[view(path = "spec.renewTime")]
        _renewed: String,
    }

    #[test]
    fn a_live_read_of_two_kinds_may_ask_for_the_fields_of_each() {
        read(|cx| {
            let node = ObjectRef::named("v1", "Node", "", "a");
            let lease = ObjectRef::named("coordination.k8s.io/v1", "Lease", "ns", "a");
            assert_eq!(cx.live_get::<Signs>(&[node, lease]).len(), 2);
        });
    }

    #[test]
    fn a_live_read_of_known_fields_is_answered() {
        read(|cx| {
            let fields = ["metadata.labels", "spec.unschedulable"].map(str::to_owned);
            let node = ObjectRef::named("v1", "Node", "", "a");
            assert!(cx.live_fields::<Identity>(&node, &fields).is_err());
        });
    }
}
