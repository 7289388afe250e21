//! The declared fields, checked against Kubernetes' built-in kinds.

use davit_kinds::{Kind, UnknownField, kind, kind_at};

use crate::bindings::davit::controller::manifests::Watch;
use crate::{Manifest, Source};

/// The first declared field that the kind of its watch does not have, as a sentence.
/// Only built-in kinds are checked, in the watch's version.
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
    let kind = kind_of(&watch.source)?;
    let indexes = watch.indexes.iter();
    let indexed = indexes.flat_map(|index| std::iter::once(&index.path).chain(&index.order));
    let mut unknown = watch.fields.iter().chain(indexed).filter_map(|path| {
        let mut unknown = kind.check(path).err()?;
        if let Source::EveryDeletable(_) = watch.source {
            "an object's metadata".clone_into(&mut unknown.kind);
        }
        Some((path.as_str(), unknown))
    });
    unknown.next()
}

fn kind_of(source: &Source) -> Option<Kind> {
    match source {
        Source::One(resource) => kind_at(&resource.group, &resource.version, &resource.plural),
        // Only metadata can be read of it, and every kind has the same.
        Source::EveryDeletable(_) => kind("", "namespaces"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Harness;
    use crate::{
        ApiResource, ConfigError, Context, Controller, Decision, Identity, Index, IndexName, Retry,
        WatchName, WorkItem,
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
    fn only_built_in_kinds_are_checked() {
        assert_eq!(problem(watch("example.com", "v1", "jobs", &["a"])), None);
        assert_eq!(problem(watch("", "v0", "pods", &["a"])), None);
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
}
