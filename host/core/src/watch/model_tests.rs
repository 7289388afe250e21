//! Drives the state machine against a model of an API server that behaves as
//! badly as it may, and compares what its reader holds in the end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::object::Uid;

/// What happens next, in the cluster or on the wire.
#[derive(Clone, Debug)]
enum Step {
    /// An object is created or changed.
    Write(u8),
    /// An object is deleted.
    Remove(u8),
    /// The server forgets the history before now.
    Compact,
    /// The answer to the request under way, or this many events of it.
    Answer(u8),
    /// The connection breaks.
    Drop,
    /// The server ends the stream in good order.
    End,
    /// The server answers with this code.
    Refuse(u16),
    /// The last event is sent once more.
    Repeat,
    /// A frame is garbled.
    Garble,
    /// The next timer fires.
    TimeOut,
    /// Other fields are wanted.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6_u8).prop_map(Step::Write),
        3 => (0..6_u8).prop_map(Step::Remove),
        1 => Just(Step::Compact),
        12 => (1..5_u8).prop_map(Step::Answer),
        2 => Just(Step::Drop),
        1 => Just(Step::End),
        1 => prop::sample::select(vec![400, 404, 410, 422, 429, 500, 503]).prop_map(Step::Refuse),
        1 => Just(Step::Repeat),
        1 => Just(Step::Garble),
        2 => Just(Step::TimeOut),
        1 => Just(Step::Restart),
    ]
}

type View = BTreeMap<u8, u64>;

/// The server: what there is, and the changes that it remembers.
#[derive(Default)]
struct Server {
    version: u64,
    objects: View,
    history: Vec<(u64, u8, bool)>,
    compacted: u64,
    /// Every state that it was ever in.
    past: BTreeSet<View>,
}

impl Server {
    fn change(&mut self, name: u8, deleted: bool) {
        if deleted && self.objects.remove(&name).is_none() {
            return;
        }
        self.version += 1;
        if !deleted {
            self.objects.insert(name, self.version);
        }
        self.history.push((self.version, name, deleted));
        self.past.insert(self.objects.clone());
    }

    fn compact(&mut self) {
        self.compacted = self.version;
        self.history.clear();
    }

    fn events_after(&self, version: u64) -> VecDeque<Event> {
        let later = self.history.iter().filter(|(at, ..)| *at > version);
        later
            .map(|(at, name, deleted)| match deleted {
                true => Event::Deleted(object(*name, *at)),
                false => Event::Applied(object(*name, *at)),
            })
            .collect()
    }
}

/// The wire: the request under way and how far its answer has come.
enum Wire {
    Idle,
    /// A list at this state, of which the objects up to `from` were sent.
    Pages {
        state: View,
        version: u64,
        from: usize,
    },
    /// A stream: what comes before the live events, the last version sent, and
    /// whether the bookmark that ends the initial state is still to come.
    Stream {
        opened: bool,
        first: VecDeque<Event>,
        version: u64,
        bookmark: bool,
    },
}

struct World {
    server: Server,
    /// The states of lists, by continue token.
    lists: BTreeMap<String, (View, u64, usize)>,
    wire: Wire,
    watch: Watch,
    view: View,
    last: Option<Event>,
    now: Instant,
    streams: bool,
}

fn object(name: u8, version: u64) -> Projected {
    Projected {
        namespace: "ns".into(),
        name: name.to_string().into(),
        uid: Uid::new("u"),
        resource_version: version.to_string().into(),
        data: Box::new([]),
    }
}

fn entry(object: &Projected) -> (u8, u64) {
    let version = object.resource_version.parse().unwrap();
    (object.name.parse().unwrap(), version)
}

impl World {
    fn new(streaming_list: bool, server_streams: bool) -> Self {
        let settings = Settings {
            streaming_list,
            ..Settings::default()
        };
        let now = Instant::from_nanos(1);
        let mut world = Self {
            server: Server::default(),
            lists: BTreeMap::new(),
            wire: Wire::Idle,
            watch: Watch::new(settings, 7, now),
            view: View::new(),
            last: None,
            now,
            streams: server_streams,
        };
        world.drain();
        world
    }

    fn drain(&mut self) {
        while let Some(output) = self.watch.poll_output() {
            match output {
                Output::Send(request) => self.request(request),
                Output::Abandon => self.wire = Wire::Idle,
                Output::Reset(items) => {
                    self.view = items.iter().map(entry).collect();
                    let is_whole = self.view.is_empty() || self.server.past.contains(&self.view);
                    assert!(is_whole, "never so on the server: {:?}", self.view);
                }
                Output::Apply(object) => {
                    let (name, version) = entry(&object);
                    self.view.insert(name, version);
                }
                Output::Delete(object) => {
                    self.view.remove(&entry(&object).0);
                }
                Output::Condition(_) => {}
            }
        }
    }

    fn request(&mut self, request: Request) {
        let server = &self.server;
        self.wire = match request {
            Request::Page { continue_token, .. } => {
                let fresh = (server.objects.clone(), server.version, 0);
                let known = self.lists.get(&*continue_token).cloned();
                let (state, version, from) = known.unwrap_or(fresh);
                Wire::Pages {
                    state,
                    version,
                    from,
                }
            }
            Request::StreamingList { .. } => {
                let objects = server.objects.iter();
                let first = objects.map(|(name, at)| Event::Applied(object(*name, *at)));
                Wire::Stream {
                    opened: false,
                    first: first.collect(),
                    version: server.version,
                    bookmark: self.streams,
                }
            }
            Request::Watch {
                resource_version, ..
            } => Wire::Stream {
                opened: false,
                first: VecDeque::new(),
                version: resource_version.parse().unwrap(),
                bookmark: false,
            },
        };
    }

    /// The server sends a page, or so many events.
    fn answer(&mut self, count: u8) {
        match std::mem::replace(&mut self.wire, Wire::Idle) {
            Wire::Idle => {}
            Wire::Pages { version, .. } if version < self.server.compacted => {
                self.interrupt(&refused(410));
            }
            Wire::Pages {
                state,
                version,
                from,
            } => {
                let end = from + usize::from(count);
                let items = state.iter().skip(from).take(usize::from(count));
                let mut page = Page {
                    items: items.map(|(name, at)| object(*name, *at)).collect(),
                    resource_version: version.to_string().into(),
                    continue_token: Box::default(),
                };
                if end < state.len() {
                    let token = format!("{version}-{end}");
                    page.continue_token = token.as_str().into();
                    self.lists.insert(token, (state, version, end));
                }
                self.watch.handle_page(page, self.now);
                self.drain();
            }
            Wire::Stream {
                opened,
                mut first,
                mut version,
                mut bookmark,
            } => {
                if version < self.server.compacted {
                    self.interrupt(&refused(410));
                    return;
                }
                if !opened {
                    self.watch.handle_opened(self.now);
                }
                let mut live = self.server.events_after(version);
                let mut sent = Vec::new();
                for _ in 0..count {
                    if let Some(event) = first.pop_front() {
                        sent.push(event);
                    } else if let Some(event) = live.pop_front() {
                        if let Event::Applied(object) | Event::Deleted(object) = &event {
                            version = entry(object).1;
                        }
                        sent.push(event);
                    } else if std::mem::take(&mut bookmark) {
                        sent.push(Event::Bookmark {
                            resource_version: version.to_string().into(),
                            initial_events_end: true,
                        });
                    }
                }
                self.wire = Wire::Stream {
                    opened: true,
                    first,
                    version,
                    bookmark,
                };
                for event in sent {
                    self.last = Some(event.clone());
                    self.watch.handle_event(event, self.now);
                    self.drain();
                }
                self.drain();
            }
        }
    }

    /// Sends an event once more: that of a stream that is open.
    fn repeat(&mut self) {
        let Wire::Stream {
            opened: true,
            version,
            ..
        } = self.wire
        else {
            return;
        };
        // A server repeats nothing older than the last it sent.
        if let Some(event @ (Event::Applied(object) | Event::Deleted(object))) = &self.last
            && entry(object).1 == version
        {
            self.watch.handle_event(event.clone(), self.now);
            self.drain();
        }
    }

    fn interrupt(&mut self, interruption: &Interruption) {
        if !matches!(self.wire, Wire::Idle) || matches!(interruption, Interruption::Refused(_)) {
            self.watch.handle_interruption(interruption, self.now);
            self.drain();
        }
    }

    fn step(&mut self, step: &Step) {
        self.now = self.now.after(Duration::from_millis(700));
        match step {
            Step::Write(name) => self.server.change(*name, false),
            Step::Remove(name) => self.server.change(*name, true),
            Step::Compact => self.server.compact(),
            Step::Answer(count) => self.answer(*count),
            Step::Drop => self.interrupt(&Interruption::Lost("dropped".into())),
            Step::End => {
                self.watch.handle_end(self.now);
                self.drain();
            }
            Step::Refuse(code) if !matches!(self.wire, Wire::Idle) => {
                self.interrupt(&refused(*code));
            }
            Step::Refuse(_) => {}
            Step::Repeat => self.repeat(),
            Step::Garble => self.interrupt(&Interruption::Malformed("garbled".into())),
            Step::TimeOut => {
                self.now = self.now.max(self.watch.poll_timeout());
                self.watch.handle_timeout(self.now);
                self.drain();
            }
            Step::Restart => {
                self.watch.restart(self.now);
                self.drain();
            }
        }
    }

    /// Lets the server behave until nothing is left to be said.
    fn settle(&mut self) {
        for _ in 0..200 {
            match &self.wire {
                Wire::Idle => self.step(&Step::TimeOut),
                Wire::Stream {
                    opened: true,
                    first,
                    version,
                    bookmark: false,
                } if first.is_empty() && *version == self.server.version => {
                    if matches!(self.watch.state(), State::Watching { .. }) {
                        return;
                    }
                    self.step(&Step::TimeOut);
                }
                _ => self.answer(3),
            }
        }
        panic!("it does not settle: {:?}", self.watch.state());
    }
}

fn refused(code: u16) -> Interruption {
    Interruption::Refused(Refusal {
        code,
        message: "no".into(),
        retry_after: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn the_reader_ends_up_with_what_the_server_has(
        steps in prop::collection::vec(step(), 0..80),
        streaming_list in any::<bool>(),
        server_streams in any::<bool>(),
    ) {
        let mut world = World::new(streaming_list, server_streams);
        for step in &steps {
            world.step(step);
        }
        world.settle();
        prop_assert_eq!(&world.view, &world.server.objects);
    }
}
