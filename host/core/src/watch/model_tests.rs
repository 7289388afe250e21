//! Drives the state machine against a model of an API server that behaves as badly as
//! the API allows, and compares the final state of its reader.

use proptest::prelude::*;

use super::model::{ClusterChange, Line, Server, Step, View, deed, entry, step};
use super::*;

#[derive(Clone, Debug)]
enum Move {
    ClusterChange(ClusterChange),
    Step(Step),
}

struct World {
    server: Server,
    line: Line,
    view: View,
    now: Instant,
}

impl World {
    fn new(streaming_list: bool, streams: bool) -> Self {
        let now = Instant::from_nanos(1);
        let server = Server::new();
        let line = Line::new(streaming_list, streams, &server, now);
        Self {
            server,
            line,
            view: View::new(),
            now,
        }
    }

    fn go(&mut self, step: &Move) {
        self.now = self.now.after(Duration::from_millis(700));
        match step {
            Move::ClusterChange(deed) => self.server.change(deed),
            Move::Step(step) => self.line.step(step, &self.server, &mut self.now),
        }
        for news in self.line.news() {
            self.take(news);
        }
    }

    fn take(&mut self, news: Update) {
        match news {
            Update::Reset { items, .. } => {
                self.view = items.iter().map(entry).collect();
                let mut past = self.server.past.values();
                let is_whole = past.any(|state| *state == self.view);
                assert!(is_whole, "never so on the server: {:?}", self.view);
            }
            Update::Apply(object) => {
                let (name, version) = entry(&object);
                self.view.insert(name, version);
            }
            Update::Delete(object) => {
                self.view.remove(&entry(&object).0);
            }
            Update::Status(_) => {}
        }
    }

    /// Lets the server behave well until it has nothing left to send.
    fn settle(&mut self) {
        for _ in 0..200 {
            match self.line.next_good_step(&self.server) {
                Some(step) => self.go(&Move::Step(step)),
                None => return,
            }
        }
        panic!("it does not settle: {:?}", self.line.watch.state());
    }
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let next = prop_oneof![
        12 => deed().prop_map(Move::ClusterChange),
        20 => step().prop_map(Move::Step),
    ];
    prop::collection::vec(next, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn the_reader_converges_to_the_servers_state(
        moves in moves(),
        streaming_list in any::<bool>(),
        server_streams in any::<bool>(),
    ) {
        let mut world = World::new(streaming_list, server_streams);
        for step in &moves {
            world.go(step);
        }
        world.settle();
        prop_assert_eq!(&world.view, &world.server.objects);
    }
}
