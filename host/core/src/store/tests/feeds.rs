//! Streams that replace each other.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::{fields, segment};
use crate::msgpack::sample::{Sample, map};
use crate::msgpack::{self, Value};
use crate::object::ProjectedObject;
use crate::store::*;
use crate::stream::{StreamId, Update};
use crate::time::Instant;
use crate::watch::model::{ClusterChange, Line, Server, Step, View as Versions, deed, step};

/// The fields that views read; every object has its version in each.
const FIELDS: [&str; 3] = ["a", "b", "c"];

/// An object as a stream with these fields delivers it.
fn keep(fields: &FieldTree, object: ProjectedObject) -> ProjectedObject {
    let version = Sample::Integer(object.resource_version.parse().unwrap());
    let value = map(FIELDS.map(|field| (field, version.clone())));
    let data = value.project(fields).encode().into();
    ProjectedObject { data, ..object }
}

#[derive(Clone, Debug)]
enum Move {
    ClusterChange(ClusterChange),
    /// A step of a stream.
    Step(usize, Step),
    /// This many outputs of a stream reach the store.
    Deliver(usize, u8),
    /// A view of this field is added, or one is removed. The first view stays.
    AddView(usize),
    RemoveView(usize),
    /// Discovery says that the resource is not served, or is served again.
    Served(bool),
    /// A new list is requested.
    ListAgain,
}

/// A server, its streams, and their store.
struct World {
    server: Server,
    store: Store,
    feeds: Feeds,
    lines: BTreeMap<StreamId, (Line, VecDeque<Update>)>,
    /// Views with the fields that they read.
    views: Vec<(ViewId, &'static str)>,
    /// The version of the state that was last visible.
    past_from: u64,
    streaming: (bool, bool),
    served: bool,
    now: Instant,
}

impl World {
    fn new(streaming: (bool, bool)) -> Self {
        let mut store = Store::default();
        let (view, _) = join(&mut store, "a");
        let mut world = Self {
            server: Server::new(),
            store,
            feeds: Feeds::default(),
            lines: BTreeMap::new(),
            views: vec![(view, "a")],
            past_from: 0,
            streaming,
            served: true,
            now: Instant::from_nanos(1),
        };
        world.follow();
        world
    }

    fn go(&mut self, step: &Move) {
        self.now = self.now.after(Duration::from_millis(700));
        match step {
            Move::ClusterChange(deed) => self.server.change(deed),
            Move::Step(position, step) => {
                let count = self.lines.len().max(1);
                if let Some((line, _)) = self.lines.values_mut().nth(position % count) {
                    line.step(step, &self.server, &mut self.now);
                }
            }
            Move::Deliver(position, count) => {
                let lines = self.lines.len().max(1);
                if let Some(id) = self.lines.keys().nth(position % lines).copied() {
                    self.deliver(id, (*count).into());
                }
            }
            Move::AddView(field) => {
                let (view, _) = join(&mut self.store, FIELDS[*field]);
                self.views.push((view, FIELDS[*field]));
                self.follow();
            }
            Move::RemoveView(position) if self.views.len() > 1 => {
                let position = 1 + position % (self.views.len() - 1);
                self.store.remove_view(self.views.remove(position).0);
                self.follow();
            }
            Move::RemoveView(_) => {}
            Move::Served(served) => {
                self.served = *served;
                self.follow();
            }
            Move::ListAgain => {
                let segment = self.store.segments().next().map(|(segment, _)| segment);
                self.feeds.list_again(segment.unwrap());
                self.follow();
            }
        }
        for (line, said) in self.lines.values_mut() {
            said.extend(line.news());
        }
        self.check();
    }

    fn follow(&mut self) {
        self.feeds.follow(&self.store, |_| self.served);
        let feeds = &self.feeds;
        self.lines.retain(|id, _| feeds.contains(*id));
        for (id, _) in feeds.iter() {
            let (list, known) = self.streaming;
            let line = || Line::new(list, known, &self.server, self.now);
            self.lines
                .entry(id)
                .or_insert_with(|| (line(), VecDeque::new()));
        }
        assert!(self.lines.len() <= 2, "one stream fills, another is to");
    }

    fn deliver(&mut self, id: StreamId, count: usize) {
        for _ in 0..count {
            let said = self
                .lines
                .get_mut(&id)
                .and_then(|(_, said)| said.pop_front());
            let Some(said) = said else { return };
            let fields = self
                .feeds
                .iter()
                .find(|(other, _)| *other == id)
                .unwrap()
                .1
                .fields
                .clone();
            let keep = |object| keep(&fields, object);
            let update = match said {
                Update::Apply(object) => Update::Apply(keep(object)),
                Update::Delete(object) => Update::Delete(keep(object)),
                Update::Reset {
                    items,
                    resource_version,
                } => Update::Reset {
                    items: items.into_iter().map(keep).collect(),
                    resource_version,
                },
                Update::Status(_) => said,
            };
            let (feeds, store, now) = (&mut self.feeds, &mut self.store, self.now);
            let taken = feeds.update(store, id, update, now, &mut Vec::new());
            let taken = taken.expect("no list lacks fields");
            if taken == FeedUpdate::List {
                self.follow();
            }
            self.check();
        }
    }

    /// The views show one state of the server, and never an earlier one than before.
    fn check(&mut self) {
        let snapshot = self.store.snapshot();
        for (id, field) in &self.views {
            if self.store.synced(*id) != Some(true) {
                continue;
            }
            let entries = snapshot.view(*id).unwrap().scan(0, 100).items;
            let state: Versions = entries.iter().map(|entry| read(entry, field)).collect();
            let mut past = self.server.past.range(self.past_from..);
            let found = past.find(|(_, past)| **past == state);
            let Some((version, _)) = found else {
                panic!("not so on the server since {}: {state:?}", self.past_from);
            };
            self.past_from = *version;
        }
    }

    /// Lets the server behave well until it has nothing left to send.
    fn settle(&mut self) {
        for _ in 0..400 {
            let mut is_idle = true;
            let ids: Vec<StreamId> = self.lines.keys().copied().collect();
            for (position, id) in ids.into_iter().enumerate() {
                let Some((line, said)) = self.lines.get(&id) else {
                    continue;
                };
                let step = line.next_good_step(&self.server);
                is_idle &= step.is_none() && said.is_empty();
                if let Some(step) = step {
                    self.go(&Move::Step(position, step));
                }
                self.deliver(id, usize::MAX);
            }
            if is_idle {
                return;
            }
        }
        panic!("it does not settle");
    }
}

fn join(store: &mut Store, field: &str) -> (ViewId, SegmentId) {
    let view = store.add_view(ViewSpec {
        fields: fields(&[field]),
        ..ViewSpec::default()
    });
    let joined = store.attach(view, &segment("pods"), &mut Vec::new());
    (view, joined.unwrap())
}

/// The name of an object, and the version in the field.
fn read(entry: &Entry<'_>, field: &str) -> (u8, u64) {
    let mut version = 0;
    let mut take = |value: Value<'_>| match value {
        Value::Unsigned(number) => version = number,
        other => panic!("{other:?}"),
    };
    msgpack::visit(&entry.object.data(), &field.parse().unwrap(), &mut take).unwrap();
    (entry.object.name().parse().unwrap(), version)
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let next = prop_oneof![
        12 => deed().prop_map(Move::ClusterChange),
        24 => (0..2_usize, step()).prop_map(|(line, step)| Move::Step(line, step)),
        16 => (0..2_usize, 1..6_u8).prop_map(|(line, count)| Move::Deliver(line, count)),
        2 => (0..FIELDS.len()).prop_map(Move::AddView),
        1 => (0..4_usize).prop_map(Move::RemoveView),
        1 => any::<bool>().prop_map(Move::Served),
        1 => Just(Move::ListAgain),
    ];
    prop::collection::vec(next, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// Whatever happens to streams and views, the store never goes back, and reaches
    /// the server's last state.
    #[test]
    fn streams_that_take_over_show_nothing_older_and_leave_nothing_out(
        moves in moves(),
        streaming in any::<(bool, bool)>(),
    ) {
        let mut world = World::new(streaming);
        for step in &moves {
            world.go(step);
        }
        world.go(&Move::Served(true));
        world.settle();
        world.check();
        prop_assert_eq!(world.feeds.iter().count(), 1);
        for (view, field) in &world.views {
            prop_assert_eq!(world.store.synced(*view), Some(true));
            let shown = world.store.view(*view).unwrap().scan(0, 100).items;
            let shown: Versions = shown.iter().map(|entry| read(entry, field)).collect();
            prop_assert_eq!(&shown, &world.server.objects);
        }
    }
}

/// A store with a view of the field `a`, which stream 0 fills, and a view of the field
/// `b`, for which stream 1 lists.
struct TwoStreams {
    store: Store,
    feeds: Feeds,
    views: [ViewId; 2],
}

impl TwoStreams {
    fn new(list: &[(u8, u64)], version: &str) -> Self {
        let mut store = Store::default();
        let (first, _) = join(&mut store, "a");
        let mut feeds = Feeds::default();
        feeds.follow(&store, |_| true);
        let mut two = Self {
            store,
            feeds,
            views: [first, first],
        };
        two.list(0, list, version);
        two.views[1] = join(&mut two.store, "b").0;
        two.feeds.follow(&two.store, |_| true);
        two
    }

    fn streams(&self) -> Vec<u32> {
        self.feeds.iter().map(|(id, _)| id.0).collect()
    }

    fn keep(&self, stream: u32, (name, version): (u8, u64)) -> ProjectedObject {
        let mut feeds = self.feeds.iter();
        let feed = feeds.find(|(id, _)| id.0 == stream).map(|(_, feed)| feed);
        let fields = feed.map(|feed| feed.fields.clone()).unwrap_or_default();
        keep(&fields, crate::watch::model::object(name, version))
    }

    fn list(&mut self, stream: u32, list: &[(u8, u64)], version: &str) {
        let items = list.iter().map(|item| self.keep(stream, *item)).collect();
        let resource_version = version.into();
        let update = Update::Reset {
            items,
            resource_version,
        };
        self.update(stream, update);
    }

    fn change(&mut self, stream: u32, name: u8, version: u64, deleted: bool) {
        let object = self.keep(stream, (name, version));
        let update = if deleted {
            Update::Delete(object)
        } else {
            Update::Apply(object)
        };
        self.update(stream, update);
    }

    fn update(&mut self, stream: u32, update: Update) {
        let now = Instant::from_nanos(1);
        let (store, feeds) = (&mut self.store, &mut self.feeds);
        let taken = feeds.update(store, StreamId(stream), update, now, &mut Vec::new());
        if taken == Ok(FeedUpdate::List) {
            feeds.follow(store, |_| true);
        }
    }

    /// The content of the views; none if a view is not complete.
    fn contents(&self) -> [Option<Versions>; 2] {
        [0, 1].map(|position| {
            let id = self.views[position];
            let entries = self.store.view(id)?.scan(0, 100).items;
            let read = |entry: &Entry<'_>| read(entry, FIELDS[position]);
            (self.store.synced(id) == Some(true)).then(|| entries.iter().map(read).collect())
        })
    }
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "it is compared with what a view shows, which may be nothing"
)]
fn state(objects: &[(u8, u64)]) -> Option<Versions> {
    Some(objects.iter().copied().collect())
}

#[test]
fn the_current_stream_continues_until_its_successor_has_caught_up() {
    let mut two = TwoStreams::new(&[(1, 1), (2, 2)], "2");
    assert_eq!(two.streams(), [0, 1]);
    two.change(0, 1, 5, false);
    two.change(0, 2, 6, true);
    assert_eq!(two.contents(), [state(&[(1, 5)]), None]);
    // Older than the visible state: the deleted object does not return.
    two.list(1, &[(1, 1), (2, 2)], "4");
    assert_eq!(two.contents(), [state(&[(1, 5)]), None]);
    two.change(1, 1, 5, false);
    two.change(0, 3, 7, false);
    two.change(1, 2, 6, true);
    assert_eq!(two.contents(), [state(&[(1, 5), (3, 7)]), None]);
    two.change(1, 3, 7, false);
    let both = || state(&[(1, 5), (3, 7)]);
    assert_eq!(two.contents(), [both(), both()]);
    assert_eq!(two.streams(), [1]);
    // Late outputs of the former stream are already known.
    two.change(0, 1, 5, true);
    two.list(0, &[], "9");
    assert_eq!(two.contents(), [both(), both()]);
}

#[test]
fn a_successor_that_is_ahead_takes_over_immediately() {
    let mut two = TwoStreams::new(&[(1, 1)], "1");
    two.list(1, &[(1, 4), (2, 3)], "4");
    let both = || state(&[(1, 4), (2, 3)]);
    assert_eq!(two.contents(), [both(), both()]);
    assert_eq!(two.streams(), [1]);
}

#[test]
fn a_third_view_lists_all_fields_and_a_removed_one_none() {
    let mut two = TwoStreams::new(&[(1, 1)], "1");
    let (third, _) = join(&mut two.store, "c");
    two.feeds.follow(&two.store, |_| true);
    assert_eq!(two.streams(), [0, 2]);
    two.list(1, &[(1, 1)], "1");
    assert_eq!(
        two.contents(),
        [state(&[(1, 1)]), None],
        "it lacks the third"
    );
    two.store.remove_view(third);
    two.feeds.follow(&two.store, |_| true);
    assert_eq!(two.streams(), [0, 2], "it has what the second needs");
    two.store.remove_view(two.views[1]);
    two.feeds.follow(&two.store, |_| true);
    assert_eq!(two.streams(), [0]);
    two.list(2, &[], "9");
    two.change(0, 1, 2, false);
    assert_eq!(two.contents(), [state(&[(1, 2)]), None]);
    // Requested again, with a stream of its own.
    two.views[1] = join(&mut two.store, "b").0;
    two.feeds.follow(&two.store, |_| true);
    assert_eq!(two.streams(), [0, 3]);
    two.list(3, &[(1, 2)], "2");
    assert_eq!(two.contents(), [state(&[(1, 2)]), state(&[(1, 2)])]);
}

/// Another list of the current stream may be of a later state than the list of its
/// successor.
#[test]
fn a_successor_lists_again_after_the_current_stream_has_listed() {
    let mut two = TwoStreams::new(&[(1, 1)], "1");
    two.list(0, &[(1, 8)], "8");
    assert_eq!(two.streams(), [0, 2]);
    two.list(1, &[(1, 1)], "9");
    assert_eq!(two.contents(), [state(&[(1, 8)]), None]);
    two.list(2, &[(1, 8)], "8");
    assert_eq!(two.contents(), [state(&[(1, 8)]), state(&[(1, 8)])]);
}

/// Two streams cannot run side by side if their versions cannot be compared.
#[test]
fn without_comparable_versions_the_current_stream_ends_first() {
    let mut two = TwoStreams::new(&[(1, 1)], "x");
    assert_eq!(two.streams(), [1]);
    two.change(0, 1, 2, false);
    assert_eq!(two.contents(), [state(&[(1, 1)]), None]);
    two.list(1, &[(1, 2)], "y");
    assert_eq!(two.contents(), [state(&[(1, 2)]), state(&[(1, 2)])]);
}

/// No view is complete yet, so no stream has to continue.
#[test]
fn the_first_list_has_all_fields() {
    let mut store = Store::default();
    join(&mut store, "a");
    let mut feeds = Feeds::default();
    feeds.follow(&store, |_| true);
    join(&mut store, "b");
    feeds.follow(&store, |_| true);
    feeds.follow(&store, |_| true);
    let streams: Vec<(u32, FieldTree)> = feeds
        .iter()
        .map(|(id, feed)| (id.0, feed.fields.clone()))
        .collect();
    assert_eq!(streams, [(1, fields(&["a", "b"]))]);
    assert!(feeds.fills(StreamId(1)));
}

/// A restarted stream lists the fields of its views, although another one listed them
/// before.
#[test]
fn a_restarted_stream_keeps_the_delivered_objects() {
    let mut two = TwoStreams::new(&[(1, 1)], "1");
    two.list(1, &[(1, 1)], "1");
    let segment = two.store.segments().next().unwrap().0;
    two.store.remove_view(two.views[1]);
    two.feeds.follow(&two.store, |_| false);
    assert_eq!(two.streams(), [0; 0]);
    two.feeds.follow(&two.store, |_| true);
    assert_eq!(two.streams(), [2]);
    // The stream lists the first view's field only. This view is visible too.
    two.views[1] = join(&mut two.store, "b").0;
    assert_eq!(two.contents(), [state(&[(1, 1)]), state(&[(1, 1)])]);
    two.feeds.follow(&two.store, |_| true);
    assert_eq!(two.streams(), [3]);
    two.list(2, &[(1, 2)], "2");
    two.list(3, &[(1, 2)], "2");
    assert_eq!(two.contents(), [state(&[(1, 2)]), state(&[(1, 2)])]);
    two.feeds.list_again(segment);
    two.feeds.follow(&two.store, |_| true);
    assert_eq!(two.streams(), [4]);
}
