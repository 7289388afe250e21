//! The kinds that a user may name: `pod`, `pods`, `po`, `deployments.apps`.

use std::collections::{BTreeMap, BTreeSet};

use davit_core::mapping::Mapping;
use davit_core::object::ObjectRef;
use davit_core::store::SegmentSpec;

use super::queues::GroupKind;

/// The short names of Kubernetes' own resources. The journal does not have short names.
const SHORT: [(&str, &str); 28] = [
    ("cj", "cronjobs"),
    ("cm", "configmaps"),
    ("cr", "controllerrevisions"),
    ("crd", "customresourcedefinitions"),
    ("cs", "componentstatuses"),
    ("csr", "certificatesigningrequests"),
    ("deploy", "deployments"),
    ("ds", "daemonsets"),
    ("ep", "endpoints"),
    ("ev", "events"),
    ("hpa", "horizontalpodautoscalers"),
    ("ing", "ingresses"),
    ("limits", "limitranges"),
    ("netpol", "networkpolicies"),
    ("no", "nodes"),
    ("ns", "namespaces"),
    ("pc", "priorityclasses"),
    ("pdb", "poddisruptionbudgets"),
    ("po", "pods"),
    ("pv", "persistentvolumes"),
    ("pvc", "persistentvolumeclaims"),
    ("quota", "resourcequotas"),
    ("rc", "replicationcontrollers"),
    ("rs", "replicasets"),
    ("sa", "serviceaccounts"),
    ("sc", "storageclasses"),
    ("sts", "statefulsets"),
    ("svc", "services"),
];

/// A kind as a user writes it.
#[derive(Clone, Debug)]
pub(super) struct KindQuery {
    /// The kind, or the plural name of its resource.
    name: String,
    /// The API group, if it was given.
    group: Option<String>,
}

impl KindQuery {
    /// `pod`, `pods`, `po` or `deployments.apps`.
    pub(super) fn new(text: &str) -> Self {
        let (name, group) = match text.split_once('.') {
            Some((name, group)) => (name, Some(group.to_owned())),
            None => (text, None),
        };
        let short = SHORT
            .iter()
            .find(|(short, _)| short.eq_ignore_ascii_case(name));
        Self {
            name: short.map_or(name, |(_, plural)| plural).to_owned(),
            group,
        }
    }

    /// Whether an object of a resource with this plural name is of the kind.
    pub(super) fn is_of(&self, object: &ObjectRef, plural: &str) -> bool {
        let group = self.group.as_ref();
        let mut names = [&object.kind, plural].into_iter();
        group.is_none_or(|group| group == object.group())
            && names.any(|name| name.eq_ignore_ascii_case(&self.name))
    }
}

/// The kinds that a journal has by now: those that the API server serves, and those of the
/// objects in the cache and in plans.
#[derive(Debug)]
pub(super) struct KnownKinds {
    wanted: KindQuery,
    /// The plural names of the resources of each kind.
    plurals: BTreeMap<GroupKind, BTreeSet<String>>,
    /// The kinds of objects that the journal has.
    present: BTreeSet<GroupKind>,
    was_found: bool,
}

impl KnownKinds {
    pub(super) const fn new(wanted: KindQuery) -> Self {
        Self {
            wanted,
            plurals: BTreeMap::new(),
            present: BTreeSet::new(),
            was_found: false,
        }
    }

    /// The API server serves these resources.
    pub(super) fn note_mapping(&mut self, mapping: &Mapping) {
        for served in mapping.iter() {
            let kind = (served.resource.group.clone(), served.kind.clone());
            self.note_plural(&kind, &served.resource.plural);
        }
    }

    /// The cache lists a resource.
    pub(super) fn note_list(&mut self, spec: &SegmentSpec) {
        let kind = (spec.resource.group.clone(), spec.kind.kind.to_string());
        self.note_plural(&kind, &spec.resource.plural);
        self.present.insert(kind);
    }

    fn note_plural(&mut self, kind: &GroupKind, plural: &str) {
        let plurals = self.plurals.entry(kind.clone()).or_default();
        plurals.insert(plural.to_owned());
        self.was_found |= self.is_wanted(kind);
    }

    /// A plan has this target. Returns whether its kind is the wanted one.
    pub(super) fn is_of(&mut self, target: &ObjectRef) -> bool {
        let kind = (target.group().to_owned(), target.kind.clone());
        let is_wanted = self.is_wanted(&kind);
        self.was_found |= is_wanted;
        self.present.insert(kind);
        is_wanted
    }

    /// Whether this is the wanted kind.
    pub(super) fn is_wanted(&self, kind: &GroupKind) -> bool {
        let KindQuery { name, group } = &self.wanted;
        let is_plural = || {
            let plurals = self.plurals.get(kind);
            plurals.is_some_and(|all| all.iter().any(|one| one.eq_ignore_ascii_case(name)))
        };
        group.as_ref().is_none_or(|group| *group == kind.0)
            && (name.eq_ignore_ascii_case(&kind.1) || is_plural())
    }

    /// The kinds of the objects that the journal has, if the wanted kind is none of those that
    /// it knows.
    pub(super) fn others(&self) -> Option<Vec<String>> {
        let name = |(group, kind): &GroupKind| match group.as_str() {
            "" => kind.clone(),
            group => format!("{kind}.{group}"),
        };
        (!self.was_found).then(|| self.present.iter().map(name).collect())
    }
}

#[cfg(test)]
mod tests {
    use davit_core::mapping::ServedResource;
    use davit_core::object::ApiResource;

    use super::*;

    fn known(wanted: &str) -> KnownKinds {
        let mut known = KnownKinds::new(KindQuery::new(wanted));
        let served = |group: &str, plural: &str, kind: &str| ServedResource {
            resource: ApiResource::new(group, "v1", plural),
            kind: kind.into(),
            namespaced: true,
            verbs: vec![],
            preferred: true,
        };
        known.note_mapping(&Mapping::new([
            served("", "pods", "Pod"),
            served("apps", "deployments", "Deployment"),
            served("networking.k8s.io", "ingresses", "Ingress"),
        ]));
        known
    }

    fn kind(group: &str, kind: &str) -> GroupKind {
        (group.to_owned(), kind.to_owned())
    }

    /// Nobody watches it: only the API server's answer has its plural.
    #[test]
    fn a_kind_has_its_plural_and_its_short_name_also_if_it_is_not_watched() {
        for text in ["ing", "ingress", "Ingresses", "ingresses.networking.k8s.io"] {
            let known = known(text);
            assert!(
                known.is_wanted(&kind("networking.k8s.io", "Ingress")),
                "{text}"
            );
            assert!(!known.is_wanted(&kind("", "Pod")), "{text}");
            assert_eq!(known.others(), None, "{text}");
        }
        assert!(!known("deploy.extensions").is_wanted(&kind("apps", "Deployment")));
    }

    #[test]
    fn an_unknown_kind_is_reported_with_those_that_the_journal_has() {
        let mut known = known("widgets");
        let target = ObjectRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            ..ObjectRef::default()
        };
        assert!(!known.is_of(&target));
        assert_eq!(known.others().unwrap(), ["Deployment.apps"]);
    }
}
