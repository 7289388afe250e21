use super::*;
use crate::mapping::ServedResource;
use crate::object::{ProjectedObject, Uid};
use crate::store::{SegmentSpec, ViewKey, ViewSpec};

/// A store with one view of every deletable resource, and its coverage.
struct Bench {
    store: Store,
    view: ViewId,
    watch: WatchSpec,
    coverage: Coverage,
    mapping: Mapping,
    now: Instant,
}

fn watch() -> WatchSpec {
    WatchSpec::new(
        "objects",
        Source::EveryDeletable(vec![ApiResource::new("", "v1", "events")]),
    )
}

fn served(group: &str, version: &str, plural: &str) -> ServedResource {
    ServedResource {
        resource: ApiResource::new(group, version, plural),
        kind: plural.to_owned(),
        namespaced: true,
        verbs: ["list", "watch", "delete"].map(String::from).into(),
        preferred: true,
    }
}

fn pods() -> ServedResource {
    served("", "v1", "pods")
}

fn definitions() -> ServedResource {
    served("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

fn registrations() -> ServedResource {
    served("apiregistration.k8s.io", "v1", "apiservices")
}

fn foos() -> ServedResource {
    served("example.com", "v1", "foos")
}

impl Bench {
    /// Every served resource is listed.
    fn new(served: &[ServedResource], definitions: &[&str]) -> Self {
        let mut store = Store::default();
        let view = store.add_view(ViewSpec {
            key: ViewKey::Uid,
            ..ViewSpec::default()
        });
        let mut bench = Self {
            store,
            view,
            watch: watch(),
            coverage: Coverage::default(),
            mapping: Mapping::default(),
            now: Instant::ZERO,
        };
        bench.discover(served, &[]);
        for one in served {
            let names = match one.resource.plural.as_str() {
                "customresourcedefinitions" => definitions,
                _ => &[],
            };
            bench.list(one, names);
        }
        bench
    }

    fn discover(&mut self, served: &[ServedResource], failed: &[&str]) {
        let failed: Vec<String> = failed.iter().map(|it| (*it).to_owned()).collect();
        let found = Mapping::new(served.iter().cloned()).or_from(&self.mapping, &failed);
        let known = self.mapping.iter().next().is_some();
        let before = known.then_some(&self.mapping);
        self.coverage
            .note_discovery(&self.store, before, &found, &failed);
        self.mapping = found;
        for one in served {
            self.segment(one);
        }
    }

    fn segment(&mut self, served: &ServedResource) -> SegmentId {
        let spec = SegmentSpec::of(&self.watch, served);
        let attached = self.store.attach(self.view, &spec, &mut Vec::new());
        attached.unwrap()
    }

    fn list(&mut self, served: &ServedResource, names: &[&str]) {
        let segment = self.segment(served);
        let fields = self.store.segment_fields(segment).unwrap().clone();
        let items = names.iter().map(|name| ProjectedObject {
            namespace: "".into(),
            name: (*name).into(),
            uid: Uid::new(name),
            resource_version: "1".into(),
            data: [0xc0].into(),
        });
        let items: Vec<ProjectedObject> = items.collect();
        let replaced = self
            .store
            .replace(segment, fields, items, self.now, &mut Vec::new());
        replaced.unwrap();
        self.coverage.note_list(segment);
    }

    fn condition(&mut self, served: &ServedResource, condition: &Condition) {
        let segment = self.segment(served);
        self.coverage.note_condition(segment, condition, self.now);
    }

    fn is_gone(&mut self, served: &ServedResource) -> bool {
        let segment = self.segment(served);
        self.coverage
            .is_gone(&self.store, self.view, segment, self.now)
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
        self.coverage.expire(self.now);
    }

    fn unlisted(&mut self) -> Vec<(String, Gap)> {
        let unlisted =
            self.coverage
                .unlisted(&self.store, self.view, &self.watch, &self.mapping, self.now);
        let names = unlisted.into_iter();
        names
            .map(|it| (format!("{}.{}", it.plural, it.group), it.reason))
            .collect()
    }

    fn since(&mut self) -> Vec<Instant> {
        let unlisted =
            self.coverage
                .unlisted(&self.store, self.view, &self.watch, &self.mapping, self.now);
        unlisted.into_iter().map(|it| it.since).collect()
    }
}

fn interrupted() -> Condition {
    Condition::Interrupted {
        reason: "a test".to_owned(),
    }
}

fn one(name: &str, gap: Gap) -> Vec<(String, Gap)> {
    vec![(name.to_owned(), gap)]
}

#[test]
fn a_listed_and_watched_resource_is_covered() {
    let mut bench = Bench::new(&[pods(), definitions()], &[]);
    assert_eq!(bench.unlisted(), []);
    bench.condition(&pods(), &Condition::Synced);
    assert_eq!(bench.unlisted(), []);
}

#[test]
fn a_resource_that_was_never_listed_is_unlisted() {
    let mut bench = Bench::new(&[pods()], &[]);
    bench.discover(&[pods(), foos()], &[]);
    assert_eq!(bench.unlisted(), one("foos.example.com", Gap::NotListed));
    bench.condition(&foos(), &interrupted());
    assert_eq!(bench.unlisted(), one("foos.example.com", Gap::NotListed));
    bench.list(&foos(), &[]);
    assert_eq!(bench.unlisted(), []);
}

#[test]
fn a_watch_has_to_catch_up_after_an_interruption() {
    let mut bench = Bench::new(&[pods()], &[]);
    bench.condition(&pods(), &interrupted());
    let begun = bench.now;
    assert_eq!(bench.unlisted(), one("pods.", Gap::Interrupted));
    bench.wait(60);
    bench.condition(&pods(), &Condition::Synced);
    assert_eq!(bench.unlisted(), one("pods.", Gap::Interrupted));
    assert_eq!(bench.since(), [begun], "it is one interruption");
    bench.wait(2);
    assert_eq!(bench.unlisted(), []);
    // After a list there is nothing to catch up with.
    bench.condition(&pods(), &interrupted());
    bench.list(&pods(), &[]);
    bench.condition(&pods(), &Condition::Synced);
    assert_eq!(bench.unlisted(), []);
}

/// What an operator reads of it must not change as often as the stream tries again.
#[test]
fn an_interruption_has_its_start_and_its_cause_until_the_watch_is_back() {
    let mut bench = Bench::new(&[pods()], &[]);
    let segment = bench.segment(&pods());
    let interruption = |bench: &Bench| {
        let found = bench.coverage.interruption(segment);
        found.map(|(since, reason)| (since, reason.to_owned()))
    };
    assert_eq!(interruption(&bench), None);
    let begun = bench.now;
    bench.condition(&pods(), &interrupted());
    let since_begun = |reason: &str| Some((begun, reason.to_owned()));
    assert_eq!(interruption(&bench), since_begun("a test"));
    for (reason, shown) in [
        ("it ended after 3 s", "it ended after 3 s"),
        ("it ended after 29 s", "it ended after 3 s"),
        ("403: forbidden", "403: forbidden"),
    ] {
        bench.wait(30);
        let reason = reason.to_owned();
        bench.condition(&pods(), &Condition::Interrupted { reason });
        assert_eq!(interruption(&bench), since_begun(shown));
    }
    // Discovery says that it is served.
    bench.condition(&pods(), &Condition::NotServed);
    assert_eq!(
        interruption(&bench),
        since_begun("the API server does not serve it")
    );
    bench.coverage.note_restart(segment, bench.now);
    assert_eq!(
        interruption(&bench),
        since_begun("the API server does not serve it")
    );
    bench.condition(&pods(), &Condition::Synced);
    assert_eq!(interruption(&bench), None);
    bench.wait(5);
    bench.coverage.note_restart(segment, bench.now);
    let again = "its watch starts again".to_owned();
    assert_eq!(interruption(&bench), Some((bench.now, again)));
    bench.list(&pods(), &[]);
    bench.condition(&pods(), &Condition::NotServed);
    bench.discover(&[], &[]);
    assert_eq!(interruption(&bench), None, "it is served no longer");
}

#[test]
fn a_resource_that_is_served_no_longer_is_unknown_until_it_is_listed_again() {
    let mut bench = Bench::new(&[pods(), definitions(), foos()], &["foos.example.com"]);
    assert_eq!(bench.unlisted(), []);
    bench.condition(&foos(), &Condition::NotServed);
    let unknown = one("foos.example.com", Gap::NotServed);
    assert_eq!(bench.unlisted(), unknown);
    for _ in 0..3 {
        bench.discover(&[pods(), definitions()], &[]);
        assert_eq!(bench.unlisted(), unknown);
        assert!(!bench.is_gone(&foos()));
    }
    let segment = bench.segment(&foos());
    assert!(bench.coverage.is_missing(segment));
    bench.discover(&[pods(), definitions(), foos()], &[]);
    assert!(!bench.coverage.is_missing(segment));
    assert!(bench.coverage.waits_in_vain(segment));
    assert_eq!(bench.unlisted(), unknown);
    bench.list(&foos(), &[]);
    assert_eq!(bench.unlisted(), []);
    assert!(!bench.coverage.waits_in_vain(segment));
}

#[test]
fn an_incomplete_discovery_removes_nothing() {
    let mut bench = Bench::new(&[pods(), foos()], &[]);
    for _ in 0..3 {
        bench.discover(&[pods()], &["other.example.com/v1"]);
    }
    let segment = bench.segment(&foos());
    assert!(!bench.coverage.is_missing(segment));
}

#[test]
fn a_resource_whose_definition_is_deleted_is_gone() {
    let mut bench = Bench::new(&[pods(), definitions(), foos()], &["foos.example.com"]);
    assert_eq!(bench.unlisted(), []);
    bench.condition(&foos(), &interrupted());
    bench.list(&definitions(), &[]);
    assert!(!bench.is_gone(&foos()), "nobody says that it is not served");
    assert_eq!(bench.unlisted(), one("foos.example.com", Gap::Interrupted));
    bench.discover(&[pods(), definitions()], &[]);
    bench.discover(&[pods(), definitions()], &[]);
    assert!(bench.is_gone(&foos()));
    assert_eq!(bench.unlisted(), []);
}

/// The last discovery may be from before the deletion.
#[test]
fn a_resource_that_returns_after_its_definition_was_deleted_is_gone_again() {
    let mut bench = Bench::new(&[pods(), definitions(), foos()], &["foos.example.com"]);
    assert_eq!(bench.unlisted(), []);
    bench.condition(&foos(), &Condition::NotServed);
    bench.list(&definitions(), &[]);
    let segment = bench.segment(&foos());
    bench.store.detach(bench.view, segment, &mut Vec::new());
    bench.coverage.forget_all_but(&bench.store);
    bench.discover(&[pods(), definitions(), foos()], &[]);
    assert_eq!(bench.unlisted(), one("foos.example.com", Gap::NotListed));
    bench.condition(&foos(), &Condition::NotServed);
    assert_eq!(bench.unlisted(), []);
    assert!(bench.is_gone(&foos()));
}

/// The definition is created again before discovery has noticed its deletion: there may
/// be objects, and no stream for them.
#[test]
fn a_resource_that_returns_between_two_discoveries_is_unlisted() {
    let mut bench = Bench::new(&[pods(), definitions(), foos()], &["foos.example.com"]);
    assert_eq!(bench.unlisted(), []);
    bench.condition(&foos(), &Condition::NotServed);
    bench.list(&definitions(), &[]);
    let segment = bench.segment(&foos());
    bench.store.detach(bench.view, segment, &mut Vec::new());
    bench.coverage.forget_all_but(&bench.store);
    assert_eq!(bench.unlisted(), []);
    bench.list(&definitions(), &["foos.example.com"]);
    assert_eq!(bench.unlisted(), one("foos.example.com", Gap::NotListed));
    bench.list(&foos(), &[]);
    assert_eq!(bench.unlisted(), []);
}

#[test]
fn nothing_is_gone_as_long_as_the_definitions_are_unknown_themselves() {
    let mut bench = Bench::new(&[pods(), definitions(), foos()], &["foos.example.com"]);
    assert_eq!(bench.unlisted(), []);
    bench.condition(&foos(), &Condition::NotServed);
    bench.list(&definitions(), &[]);
    bench.condition(&definitions(), &interrupted());
    assert!(!bench.is_gone(&foos()));
    assert_eq!(bench.unlisted().len(), 2);
    bench.list(&definitions(), &[]);
    assert!(bench.is_gone(&foos()));
    assert_eq!(bench.unlisted(), []);
}

/// The resource is not served by a definition, so its objects may still exist.
#[test]
fn a_resource_without_a_definition_stays_unknown() {
    let mut bench = Bench::new(&[pods(), definitions(), foos()], &[]);
    assert_eq!(bench.unlisted(), []);
    bench.condition(&foos(), &Condition::NotServed);
    for _ in 0..3 {
        bench.discover(&[pods(), definitions()], &[]);
    }
    assert!(!bench.is_gone(&foos()));
    assert_eq!(bench.unlisted(), one("foos.example.com", Gap::NotServed));
}

#[test]
fn a_definition_whose_resource_was_never_served_is_seen() {
    let mut bench = Bench::new(&[pods(), definitions()], &["foos.example.com"]);
    assert_eq!(bench.unlisted(), one("foos.example.com", Gap::NotServed));
    // It is served, but cannot be deleted.
    let mut fixed = foos();
    fixed.verbs.retain(|verb| verb != "delete");
    bench.mapping = Mapping::new([pods(), definitions(), fixed]);
    assert_eq!(bench.unlisted(), []);
}

#[test]
fn another_version_of_a_resource_is_enough() {
    let mut bench = Bench::new(&[pods(), definitions(), foos()], &["foos.example.com"]);
    bench.condition(&foos(), &Condition::NotServed);
    let newer = served("example.com", "v2", "foos");
    bench.discover(&[pods(), definitions(), newer.clone()], &[]);
    assert_eq!(bench.unlisted().len(), 1);
    bench.list(&newer, &[]);
    assert_eq!(bench.unlisted(), []);
}

#[test]
fn a_group_that_never_answered_is_unknown_as_a_whole() {
    let mut bench = Bench::new(&[], &[]);
    bench.discover(&[pods()], &["example.com/v1"]);
    bench.list(&pods(), &[]);
    assert_eq!(bench.unlisted(), one(".example.com", Gap::Silent));
    bench.discover(&[pods()], &["example.com/v1"]);
    assert_eq!(bench.unlisted(), one(".example.com", Gap::Silent));
    bench.discover(&[pods(), foos()], &[]);
    bench.list(&foos(), &[]);
    assert_eq!(bench.unlisted(), []);
    // From here on its resources are known and watched.
    bench.discover(&[pods()], &["example.com/v1"]);
    assert_eq!(bench.unlisted(), []);
}

#[test]
fn an_excluded_resource_is_not_a_gap() {
    let mut bench = Bench::new(&[pods(), definitions()], &["foos.example.com"]);
    bench.watch.source = Source::EveryDeletable(vec![
        ApiResource::new("example.com", "v1", "foos"),
        ApiResource::new("other.example.com", "v1", "*"),
    ]);
    bench.discover(&[pods(), definitions()], &["other.example.com/v1"]);
    assert_eq!(bench.unlisted(), []);
}

#[test]
fn a_single_resource_that_is_not_served_is_unlisted() {
    let mut bench = Bench::new(&[pods()], &[]);
    bench.watch.source = Source::One(ApiResource::new("example.com", "v1", "foos"));
    let gaps = bench.unlisted();
    assert!(gaps.contains(&("foos.example.com".to_owned(), Gap::NotServed)));
}

/// Its objects may still exist, and it may be registered again.
#[test]
fn an_aggregated_resource_is_gone_hours_after_its_registration() {
    let all = [pods(), definitions(), registrations(), foos()];
    let rest = [pods(), definitions(), registrations()];
    let mut bench = Bench::new(&all, &[]);
    bench.list(&registrations(), &["v1.", "v1.example.com"]);
    assert_eq!(bench.unlisted(), []);
    bench.condition(&foos(), &Condition::NotServed);
    let unknown = one("foos.example.com", Gap::NotServed);
    let hour = 60 * 60;
    for _ in 0..10 {
        bench.wait(hour);
        bench.discover(&rest, &[]);
        assert_eq!(bench.unlisted(), unknown, "its server is away");
    }
    bench.list(&registrations(), &["v1."]);
    for _ in 0..5 {
        assert_eq!(bench.unlisted(), unknown);
        bench.wait(hour);
    }
    // It was registered again, and deleted again.
    bench.list(&registrations(), &["v1.", "v1.example.com"]);
    assert_eq!(bench.unlisted(), unknown);
    bench.list(&registrations(), &["v1."]);
    for _ in 0..6 {
        assert_eq!(bench.unlisted(), unknown);
        assert!(!bench.is_gone(&foos()));
        bench.wait(hour);
    }
    assert_eq!(bench.unlisted(), []);
    assert!(bench.is_gone(&foos()));
}
