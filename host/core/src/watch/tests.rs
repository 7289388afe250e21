use super::*;
use crate::object::Uid;

const START: Instant = Instant::from_nanos(1_000_000_000_000);

fn object(name: &str, version: &str) -> ProjectedObject {
    ProjectedObject {
        namespace: "ns".into(),
        name: name.into(),
        uid: Uid::new(name),
        resource_version: version.into(),
        data: Box::new([0x80]),
    }
}

fn page(names: &[&str], version: &str, continue_token: &str) -> Page {
    Page {
        items: names.iter().map(|name| object(name, version)).collect(),
        resource_version: version.into(),
        continue_token: continue_token.into(),
    }
}

fn reset(items: Vec<ProjectedObject>, version: &str) -> Output {
    Output::Update(Update::Reset {
        items,
        resource_version: version.into(),
    })
}

fn status(condition: Condition) -> Output {
    Output::Update(Update::Status(condition))
}

fn bookmark(version: &str, initial_events_end: bool) -> Event {
    Event::Bookmark {
        resource_version: version.into(),
        initial_events_end,
    }
}

fn refused(code: u16) -> Interruption {
    Interruption::Refused(Refusal {
        code,
        message: "no".into(),
        retry_after: None,
    })
}

fn lost() -> Interruption {
    Interruption::Lost("the connection broke".into())
}

/// A watch under test, with its clock.
struct WatchBench {
    watch: Watch,
    now: Instant,
}

impl WatchBench {
    fn paged() -> Self {
        Self::new(Settings {
            streaming_list: false,
            ..Settings::default()
        })
    }

    fn new(settings: Settings) -> Self {
        Self {
            watch: Watch::new(settings, 1, START),
            now: START,
        }
    }

    /// A watch that has listed `a` at version 5 and follows the resource.
    fn watching() -> Self {
        let mut driven = Self::paged();
        driven.outputs();
        driven.watch.handle_page(page(&["a"], "5", ""), driven.now);
        driven.watch.handle_opened(driven.now);
        driven.outputs();
        driven
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.watch.poll_output()).collect()
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    fn interrupt(&mut self, interruption: &Interruption) -> Vec<Output> {
        self.watch.handle_interruption(interruption, self.now);
        self.outputs()
    }

    /// Advances to the next timer; returns the time until then.
    fn time_out(&mut self) -> Duration {
        let due = self.watch.poll_timeout();
        let waited = due.since(self.now);
        self.now = due;
        self.watch.handle_timeout(due);
        waited
    }

    /// The server accepts the watch from this version, which is the next request.
    fn open_again(&mut self, version: &str) {
        assert!(is_watch_from(&self.only_request(), version));
        self.watch.handle_opened(self.now);
        self.outputs();
    }

    fn only_request(&mut self) -> Request {
        match self.outputs().as_slice() {
            [Output::Send(request)] => request.clone(),
            other => panic!("not one request: {other:?}"),
        }
    }
}

fn is_first_page(request: &Request) -> bool {
    matches!(request, Request::Page { continue_token, .. } if continue_token.is_empty())
}

fn is_watch_from(request: &Request, version: &str) -> bool {
    matches!(request, Request::Watch { resource_version, .. } if **resource_version == *version)
}

#[test]
fn pages_are_delivered_together_and_watched_from_their_version() {
    let mut driven = WatchBench::paged();
    assert!(is_first_page(&driven.only_request()));
    driven
        .watch
        .handle_page(page(&["b"], "5", "more"), driven.now);
    let second = Request::Page {
        limit: 500,
        continue_token: "more".into(),
    };
    assert_eq!(driven.only_request(), second);
    driven.watch.handle_page(page(&["a"], "5", ""), driven.now);
    let outputs = driven.outputs();
    let [
        Output::Update(Update::Reset {
            items,
            resource_version,
        }),
        Output::Update(Update::Status(Condition::Synced)),
        Output::Send(request),
    ] = outputs.as_slice()
    else {
        panic!("{outputs:?}");
    };
    assert_eq!(items, &[object("a", "5"), object("b", "5")]);
    assert_eq!(&**resource_version, "5");
    assert!(is_watch_from(request, "5"));
}

#[test]
fn a_streaming_list_is_complete_with_its_bookmark() {
    let mut driven = WatchBench::new(Settings::default());
    let Request::StreamingList { timeout } = driven.only_request() else {
        panic!("no streaming list");
    };
    assert!((300..600).contains(&timeout.as_secs()), "{timeout:?}");
    driven.watch.handle_opened(driven.now);
    for event in [
        Event::Applied(object("b", "3")),
        Event::Applied(object("a", "2")),
        Event::Applied(object("c", "4")),
        bookmark("4", false),
        Event::Deleted(object("b", "6")),
        Event::Applied(object("a", "7")),
    ] {
        driven.watch.handle_event(event, driven.now);
    }
    assert_eq!(driven.outputs(), []);
    driven.watch.handle_event(bookmark("7", true), driven.now);
    driven
        .watch
        .handle_event(Event::Applied(object("d", "8")), driven.now);
    assert_eq!(
        driven.outputs(),
        [
            reset(vec![object("a", "7"), object("c", "4")], "7"),
            status(Condition::Synced),
            Output::Update(Update::Apply(object("d", "8"))),
        ]
    );
    driven.interrupt(&lost());
    driven.time_out();
    assert!(is_watch_from(&driven.only_request(), "8"));
}

#[test]
fn a_server_that_knows_no_streaming_lists_is_listed_in_pages() {
    let mut driven = WatchBench::new(Settings::default());
    driven.outputs();
    driven.watch.handle_interruption(&refused(422), driven.now);
    assert!(is_first_page(&driven.only_request()));

    // A server that ignores the option opens a watch and never sends the bookmark.
    let mut driven = WatchBench::new(Settings::default());
    driven.watch.handle_opened(driven.now);
    driven
        .watch
        .handle_event(Event::Applied(object("a", "2")), driven.now);
    driven.outputs();
    assert_eq!(driven.time_out(), Duration::from_secs(90));
    assert!(driven.outputs().contains(&Output::Abandon));
    driven.time_out();
    assert!(is_first_page(&driven.only_request()));
}

/// An etcd without progress requests: the watch cache answers 200, and then with an error of its own.
#[test]
fn a_server_whose_streaming_lists_fail_is_listed_in_pages() {
    let unsupported = || {
        Event::Error(Refusal {
            code: 500,
            message: "required storage feature is disabled".into(),
            retry_after: None,
        })
    };
    let mut driven = WatchBench::new(Settings::default());
    for _ in 0..3 {
        let request = driven.only_request();
        assert!(matches!(request, Request::StreamingList { .. }));
        driven.watch.handle_opened(driven.now);
        driven.watch.handle_event(unsupported(), driven.now);
        driven.outputs();
        driven.time_out();
    }
    assert!(is_first_page(&driven.only_request()));
    driven.watch.handle_page(page(&["a"], "5", ""), driven.now);
    driven.watch.handle_opened(driven.now);
    driven.interrupt(&refused(410));
    driven.time_out();
    let request = driven.only_request();
    assert!(
        matches!(request, Request::StreamingList { .. }),
        "the next list is tried as a stream"
    );

    // One that does not answer proves nothing about its streams.
    let mut driven = WatchBench::new(Settings::default());
    for _ in 0..10 {
        driven.outputs();
        driven.interrupt(&lost());
        driven.time_out();
        let request = driven.only_request();
        assert!(matches!(request, Request::StreamingList { .. }));
    }
}

#[test]
fn an_interrupted_list_continues_and_replaces_nothing_before_its_end() {
    let mut driven = WatchBench::paged();
    driven
        .watch
        .handle_page(page(&["a"], "5", "more"), driven.now);
    driven.outputs();
    let outputs = driven.interrupt(&lost());
    assert!(matches!(
        outputs.as_slice(),
        [
            Output::Abandon,
            Output::Update(Update::Status(Condition::Interrupted { .. }))
        ]
    ));
    driven.time_out();
    let again = Request::Page {
        limit: 500,
        continue_token: "more".into(),
    };
    assert_eq!(driven.only_request(), again);
    driven.watch.handle_page(page(&["b"], "5", ""), driven.now);
    let all = vec![object("a", "5"), object("b", "5")];
    assert_eq!(driven.outputs()[0], reset(all, "5"));
}

#[test]
fn an_expired_continue_token_starts_the_list_again() {
    let mut driven = WatchBench::paged();
    driven
        .watch
        .handle_page(page(&["a"], "5", "more"), driven.now);
    driven.interrupt(&refused(410));
    driven.outputs();
    driven.time_out();
    assert!(is_first_page(&driven.only_request()));
    driven.watch.handle_page(page(&["b"], "9", ""), driven.now);
    assert_eq!(driven.outputs()[0], reset(vec![object("b", "9")], "9"));
}

#[test]
fn a_watch_continues_from_the_last_version_seen() {
    let mut driven = WatchBench::watching();
    driven.pass(Duration::from_secs(400));
    driven
        .watch
        .handle_event(Event::Deleted(object("a", "6")), driven.now);
    driven.watch.handle_event(bookmark("8", false), driven.now);
    assert_eq!(
        driven.outputs(),
        [Output::Update(Update::Delete(object("a", "6")))]
    );
    // The server's own timeout: immediately.
    driven.watch.handle_end(driven.now);
    assert!(is_watch_from(&driven.only_request(), "8"));
    // A broken connection: after a pause.
    driven.watch.handle_opened(driven.now);
    driven.interrupt(&lost());
    let pause = driven.time_out();
    assert!((125..375).contains(&pause.as_millis()), "{pause:?}");
    assert!(is_watch_from(&driven.only_request(), "8"));
    driven.watch.handle_opened(driven.now);
    assert_eq!(driven.outputs(), [status(Condition::Synced)]);
}

#[test]
fn a_version_that_is_too_old_means_a_new_list() {
    let gone = Refusal {
        code: 410,
        ..Refusal::default()
    };
    for by_event in [true, false] {
        let mut driven = WatchBench::watching();
        if by_event {
            driven
                .watch
                .handle_event(Event::Error(gone.clone()), driven.now);
        } else {
            driven.watch.handle_interruption(&refused(410), driven.now);
        }
        driven.outputs();
        driven.time_out();
        assert!(is_first_page(&driven.only_request()));
    }
}

#[test]
fn a_version_that_is_refused_repeatedly_is_replaced_by_a_list() {
    let mut driven = WatchBench::watching();
    for _ in 0..2 {
        driven.interrupt(&refused(500));
        driven.time_out();
        assert!(is_watch_from(&driven.only_request(), "5"));
    }
    driven.interrupt(&refused(500));
    driven.time_out();
    assert!(is_first_page(&driven.only_request()));

    // An overloaded server gets no additional list.
    let mut driven = WatchBench::watching();
    for _ in 0..10 {
        driven.interrupt(&refused(503));
        driven.time_out();
        assert!(is_watch_from(&driven.only_request(), "5"));
    }
}

#[test]
fn an_event_that_cannot_be_read_means_a_new_list() {
    let mut driven = WatchBench::watching();
    driven.interrupt(&Interruption::Malformed("broken".into()));
    driven.time_out();
    assert!(is_first_page(&driven.only_request()));
}

#[test]
fn silence_is_a_dead_connection() {
    let mut driven = WatchBench::watching();
    driven.pass(Duration::from_secs(80));
    driven.watch.handle_bytes(driven.now);
    assert_eq!(driven.time_out(), Duration::from_secs(90));
    assert!(is_watch_from(&driven.only_request(), "5"));
    // A request without an answer is a failure.
    driven.time_out();
    assert!(matches!(driven.watch.state(), State::Waiting { .. }));
    // A page has its own timeout.
    let mut driven = WatchBench::paged();
    assert_eq!(driven.time_out(), Duration::from_secs(60));
    assert!(matches!(driven.watch.state(), State::Waiting { .. }));
}

#[test]
fn pauses_double_up_to_their_limit_and_restart_after_a_healthy_while() {
    let mut driven = WatchBench::watching();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        driven.interrupt(&lost());
        pauses.push(driven.time_out().as_millis());
    }
    for (failures, pause) in pauses.iter().enumerate() {
        let middle = (250_u128 << failures).min(30_000);
        let range = middle / 2..middle * 3 / 2;
        assert!(range.contains(pause), "{failures}: {pause}");
    }
    driven.watch.handle_opened(driven.now);
    driven.pass(Duration::from_secs(10));
    driven.interrupt(&lost());
    assert!(driven.time_out().as_millis() < 375);
}

#[test]
fn a_stream_that_ends_immediately_is_restarted_after_a_pause() {
    let mut driven = WatchBench::watching();
    driven.watch.handle_end(driven.now);
    assert!(matches!(driven.watch.state(), State::Waiting { .. }));
    assert_eq!(driven.outputs()[0], Output::Abandon);
    driven.time_out();
    assert!(is_watch_from(&driven.only_request(), "5"));
}

/// Some servers end the watch of a version that they have forgotten at once, instead of a 410.
#[test]
fn a_version_whose_watches_end_at_once_is_replaced_by_a_list() {
    let end = |driven: &mut WatchBench| {
        driven.watch.handle_end(driven.now);
        driven.outputs();
        driven.time_out();
    };
    let mut driven = WatchBench::watching();
    for _ in 0..2 {
        end(&mut driven);
        driven.open_again("5");
    }
    end(&mut driven);
    assert!(is_first_page(&driven.only_request()));

    // What brings an event is no such watch.
    let mut driven = WatchBench::watching();
    for _ in 0..10 {
        driven.watch.handle_event(bookmark("5", false), driven.now);
        end(&mut driven);
        driven.open_again("5");
    }
}

/// After a restore of etcd, a watch cache accepts a version of its own future, and is silent.
#[test]
fn a_version_that_the_server_is_silent_about_is_replaced_by_a_list() {
    let mut driven = WatchBench::watching();
    for _ in 0..2 {
        assert_eq!(driven.time_out(), Duration::from_secs(90));
        driven.open_again("5");
    }
    driven.time_out();
    let outputs = driven.outputs();
    let is_said = |output: &Output| {
        matches!(
            output,
            Output::Update(Update::Status(Condition::Interrupted { .. }))
        )
    };
    assert!(outputs.iter().any(is_said), "{outputs:?}");
    driven.time_out();
    assert!(is_first_page(&driven.only_request()));
    // Its versions are lower ones.
    driven.watch.handle_page(page(&["b"], "3", ""), driven.now);
    assert_eq!(driven.outputs()[0], reset(vec![object("b", "3")], "3"));

    // A quiet resource has bookmarks.
    let mut driven = WatchBench::watching();
    for _ in 0..10 {
        driven.watch.handle_event(bookmark("5", false), driven.now);
        driven.time_out();
        driven.open_again("5");
    }
}

/// A proxy ends or breaks quiet streams before the watch does.
#[test]
fn silent_watches_that_end_or_break_early_are_replaced_by_a_list() {
    type End = fn(&mut WatchBench);
    let ends: [End; 2] = [
        |driven| driven.watch.handle_end(driven.now),
        |driven| {
            driven.interrupt(&lost());
            driven.time_out();
        },
    ];
    for end in ends {
        let mut driven = WatchBench::watching();
        for _ in 0..8 {
            driven.pass(Duration::from_secs(30));
            end(&mut driven);
            driven.open_again("5");
        }
        driven.pass(Duration::from_secs(30));
        end(&mut driven);
        if matches!(driven.watch.state(), State::Waiting { .. }) {
            driven.outputs();
            driven.time_out();
        }
        assert!(is_first_page(&driven.only_request()));
    }
    // An outage is no silence: nothing is listed because of it.
    let mut driven = WatchBench::watching();
    for _ in 0..100 {
        driven.interrupt(&lost());
        driven.time_out();
        assert!(is_watch_from(&driven.only_request(), "5"));
    }
}

/// It may be one without a watch cache, whose quiet resources have no bookmarks.
#[test]
fn a_server_that_knew_the_version_is_listed_less_and_less_often() {
    let mut driven = WatchBench::watching();
    let mut silences = Vec::new();
    let mut list = |driven: &mut WatchBench, version: &str| {
        let listed = driven.now;
        loop {
            driven.time_out();
            match driven.outputs().as_slice() {
                [Output::Send(request)] if is_first_page(request) => break,
                [Output::Send(_)] => driven.watch.handle_opened(driven.now),
                _ => {}
            }
        }
        silences.push(driven.now.since(listed).as_secs() / 90);
        driven
            .watch
            .handle_page(page(&["a"], version, ""), driven.now);
        driven.watch.handle_opened(driven.now);
        driven.outputs();
    };
    for version in ["5", "6", "7", "8"] {
        list(&mut driven, version);
    }
    // It was restored.
    list(&mut driven, "3");
    list(&mut driven, "3");
    driven.watch.handle_event(bookmark("9", false), driven.now);
    list(&mut driven, "9");
    assert_eq!(silences, [3, 6, 12, 20, 20, 3, 3]);
    // A refusal is no silence.
    for is_first in [false, false, true] {
        driven.interrupt(&refused(500));
        driven.time_out();
        assert_eq!(is_first_page(&driven.only_request()), is_first);
    }
}

#[test]
fn the_server_may_ask_for_a_longer_pause() {
    let mut driven = WatchBench::watching();
    driven.interrupt(&Interruption::Refused(Refusal {
        code: 429,
        message: "slow down".into(),
        retry_after: Some(Duration::from_secs(7)),
    }));
    assert_eq!(driven.time_out(), Duration::from_secs(7));
    // But not for one that leaves the cache behind.
    driven.open_again("5");
    driven.interrupt(&Interruption::Refused(Refusal {
        code: 429,
        message: "come tomorrow".into(),
        retry_after: Some(Duration::from_hours(24)),
    }));
    assert_eq!(driven.time_out(), Duration::from_secs(60));
}

#[test]
fn a_resource_that_is_not_served_is_checked_periodically() {
    let mut driven = WatchBench::watching();
    assert_eq!(
        driven.interrupt(&refused(404)),
        [Output::Abandon, status(Condition::NotServed)]
    );
    let pause = driven.time_out().as_secs();
    assert!((30..90).contains(&pause), "{pause}");
    assert!(is_first_page(&driven.only_request()));
    driven.watch.handle_page(page(&[], "9", ""), driven.now);
    assert_eq!(
        driven.outputs()[..2],
        [reset(vec![], "9"), status(Condition::Synced)]
    );
}

#[test]
fn equal_seeds_spread_equally() {
    let timeouts = |seed| {
        let mut jitter = Jitter::new(seed);
        [(); 5].map(|()| jitter.within(Duration::from_secs(300)..Duration::from_secs(600)))
    };
    assert_eq!(timeouts(1), timeouts(1));
    assert_ne!(timeouts(1), timeouts(2));
    let one = Duration::from_secs(1);
    assert_eq!(Jitter::new(3).within(one..one), one);
}
