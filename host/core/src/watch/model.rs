//! A model of an API server that behaves as badly as the API allows, and of the
//! connection between it and one watch.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::object::Uid;

/// The next step on the connection.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The server answers the request under way, or sends this many events.
    Answer(u8),
    /// The connection breaks.
    Drop,
    /// The server ends the stream normally.
    End,
    /// The server answers with this code.
    Refuse(u16),
    /// The server sends the last event again.
    Repeat,
    /// The server sends a malformed frame.
    Garble,
    /// The next timer fires.
    TimeOut,
}

/// The next step in the cluster.
#[derive(Clone, Debug)]
pub(crate) enum ClusterChange {
    /// An object is created or changed.
    Write(u8),
    /// An object is deleted.
    Remove(u8),
    /// The server drops the history before now.
    Compact,
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1..5_u8).prop_map(Step::Answer),
        2 => Just(Step::Drop),
        1 => Just(Step::End),
        1 => prop::sample::select(vec![400, 404, 410, 422, 429, 500, 503]).prop_map(Step::Refuse),
        1 => Just(Step::Repeat),
        1 => Just(Step::Garble),
        2 => Just(Step::TimeOut),
    ]
}

pub(crate) fn deed() -> impl Strategy<Value = ClusterChange> {
    prop_oneof![
        8 => (0..6_u8).prop_map(ClusterChange::Write),
        3 => (0..6_u8).prop_map(ClusterChange::Remove),
        1 => Just(ClusterChange::Compact),
    ]
}

/// Versions by name.
pub(crate) type View = BTreeMap<u8, u64>;

/// The server: its objects, and the changes in its history.
#[derive(Default)]
pub(crate) struct Server {
    version: u64,
    pub(crate) objects: View,
    history: Vec<(u64, u8, bool)>,
    compacted: u64,
    /// Every state that it ever had, by its version.
    pub(crate) past: BTreeMap<u64, View>,
}

impl Server {
    pub(crate) fn new() -> Self {
        let past = BTreeMap::from([(0, View::new())]);
        Self {
            past,
            ..Self::default()
        }
    }

    pub(crate) fn change(&mut self, deed: &ClusterChange) {
        let (name, deleted) = match *deed {
            ClusterChange::Compact => {
                self.compacted = self.version;
                self.history.clear();
                return;
            }
            ClusterChange::Write(name) => (name, false),
            ClusterChange::Remove(name) => (name, true),
        };
        if deleted && self.objects.remove(&name).is_none() {
            return;
        }
        self.version += 1;
        if !deleted {
            self.objects.insert(name, self.version);
        }
        self.history.push((self.version, name, deleted));
        self.past.insert(self.version, self.objects.clone());
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

/// The connection: the request under way, and how much of its answer was sent.
enum Wire {
    Idle,
    /// A list of this state, of which the objects up to `from` were sent.
    Pages {
        state: View,
        version: u64,
        from: usize,
    },
    /// A stream: the events before the live ones, the last version sent, and whether
    /// the bookmark that ends the initial state was not sent yet.
    Stream {
        opened: bool,
        first: VecDeque<Event>,
        version: u64,
        bookmark: bool,
    },
}

/// A watch and its connection.
pub(crate) struct Line {
    pub(crate) watch: Watch,
    wire: Wire,
    /// The states of lists, by continue token.
    lists: BTreeMap<String, (View, u64, usize)>,
    last: Option<Event>,
    /// Whether the server supports streaming lists.
    streams: bool,
    news: Vec<Update>,
}

pub(crate) fn object(name: u8, version: u64) -> ProjectedObject {
    ProjectedObject {
        namespace: "ns".into(),
        name: name.to_string().into(),
        uid: Uid::new(&name.to_string()),
        resource_version: version.to_string().into(),
        data: Box::new([]),
    }
}

pub(crate) fn entry(object: &ProjectedObject) -> (u8, u64) {
    let version = object.resource_version.parse().unwrap();
    (object.name.parse().unwrap(), version)
}

fn refused(code: u16) -> Interruption {
    Interruption::Refused(Refusal {
        code,
        message: "no".into(),
        retry_after: None,
    })
}

impl Line {
    pub(crate) fn new(streaming_list: bool, streams: bool, server: &Server, now: Instant) -> Self {
        let settings = Settings {
            streaming_list,
            ..Settings::default()
        };
        let mut line = Self {
            watch: Watch::new(settings, 7, now),
            wire: Wire::Idle,
            lists: BTreeMap::new(),
            last: None,
            streams,
            news: Vec::new(),
        };
        line.drain(server);
        line
    }

    /// The new outputs of the watch, in order.
    pub(crate) fn news(&mut self) -> Vec<Update> {
        std::mem::take(&mut self.news)
    }

    pub(crate) fn step(&mut self, step: &Step, server: &Server, now: &mut Instant) {
        match step {
            Step::Answer(count) => self.answer(*count, server, *now),
            Step::Drop => self.interrupt(&Interruption::Lost("dropped".into()), *now),
            Step::End => self.watch.handle_end(*now),
            Step::Refuse(code) if !matches!(self.wire, Wire::Idle) => {
                self.interrupt(&refused(*code), *now);
            }
            Step::Refuse(_) => {}
            Step::Repeat => self.repeat(*now),
            Step::Garble => self.interrupt(&Interruption::Malformed("garbled".into()), *now),
            Step::TimeOut => {
                *now = (*now).max(self.watch.poll_timeout());
                self.watch.handle_timeout(*now);
            }
        }
        self.drain(server);
    }

    /// A step of a well-behaved server; none if there is nothing left to send.
    pub(crate) fn next_good_step(&self, server: &Server) -> Option<Step> {
        match &self.wire {
            Wire::Idle => Some(Step::TimeOut),
            Wire::Stream {
                opened: true,
                first,
                version,
                bookmark: false,
            } if first.is_empty() && *version == server.version => {
                let is_watching = matches!(self.watch.state(), State::Watching { .. });
                (!is_watching).then_some(Step::TimeOut)
            }
            _ => Some(Step::Answer(3)),
        }
    }

    fn drain(&mut self, server: &Server) {
        while let Some(output) = self.watch.poll_output() {
            match output {
                Output::Send(request) => self.request(request, server),
                Output::Abandon => self.wire = Wire::Idle,
                Output::Update(update) => self.news.push(update),
            }
        }
    }

    fn request(&mut self, request: Request, server: &Server) {
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

    /// The server sends a page, or this many events.
    fn answer(&mut self, count: u8, server: &Server, now: Instant) {
        match std::mem::replace(&mut self.wire, Wire::Idle) {
            Wire::Idle => {}
            Wire::Pages { version, .. } if version < server.compacted => {
                self.interrupt(&refused(410), now);
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
                self.watch.handle_page(page, now);
                self.drain(server);
            }
            Wire::Stream {
                opened,
                mut first,
                mut version,
                mut bookmark,
            } => {
                if version < server.compacted {
                    self.interrupt(&refused(410), now);
                    return;
                }
                if !opened {
                    self.watch.handle_opened(now);
                }
                let mut live = server.events_after(version);
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
                    self.watch.handle_event(event, now);
                    self.drain(server);
                }
                self.drain(server);
            }
        }
    }

    /// Sends the last event of an open stream again.
    fn repeat(&mut self, now: Instant) {
        let Wire::Stream {
            opened: true,
            version,
            ..
        } = self.wire
        else {
            return;
        };
        // A server repeats nothing older than the last event that it sent.
        if let Some(event @ (Event::Applied(object) | Event::Deleted(object))) = &self.last
            && entry(object).1 == version
        {
            self.watch.handle_event(event.clone(), now);
        }
    }

    fn interrupt(&mut self, interruption: &Interruption, now: Instant) {
        if !matches!(self.wire, Wire::Idle) || matches!(interruption, Interruption::Refused(_)) {
            self.watch.handle_interruption(interruption, now);
        }
    }
}
