//! No request waits because of an event: random requests get the same turns with events
//! and without them.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Move {
    Ask(u8, Urgency),
    /// A request under way ends.
    End(usize, LoadSignal),
    /// The same for an event.
    EndEvent(usize, LoadSignal),
    /// Requests of an access wait, so many milliseconds.
    Pause(Access, u64),
    Wait(u64),
}

/// A traffic, and its requests in the order of their turns.
struct Lane {
    traffic: Traffic,
    /// Each request's number among those of its sort.
    numbers: BTreeMap<Ticket, usize>,
    under_way: Vec<Ticket>,
    events: Vec<Ticket>,
    turns: Vec<(usize, Turn)>,
    asked: usize,
}

impl Lane {
    fn new(rate: Option<Rate>) -> Self {
        Self {
            traffic: Traffic::new(rate),
            numbers: BTreeMap::new(),
            under_way: Vec::new(),
            events: Vec::new(),
            turns: Vec::new(),
            asked: 0,
        }
    }

    fn go(&mut self, step: Move, now: Instant) {
        match step {
            Move::Ask(controller, urgency) => {
                let access = match urgency {
                    Urgency::Event => Access::Event,
                    Urgency::Read => Access::Read,
                    Urgency::Begin | Urgency::Finish => Access::Write,
                };
                let request = TurnRequest {
                    controller: controller.to_string().into(),
                    urgency,
                    destination: to(access),
                };
                let ticket = self.traffic.ask(request, now);
                if urgency != Urgency::Event {
                    self.numbers.insert(ticket, self.asked);
                    self.asked += 1;
                }
            }
            Move::End(which, signal) if !self.under_way.is_empty() => {
                let ticket = self.under_way.remove(which % self.under_way.len());
                self.traffic.end(ticket, "patch", signal, now);
            }
            Move::EndEvent(which, signal) if !self.events.is_empty() => {
                let ticket = self.events.remove(which % self.events.len());
                self.traffic.end(ticket, "create", signal, now);
            }
            Move::Pause(access, millis) => {
                let pause = Duration::from_millis(millis);
                self.traffic.pause(to(access), pause, now);
            }
            Move::End(..) | Move::EndEvent(..) | Move::Wait(_) => {}
        }
        while let Some((ticket, turn)) = self.traffic.poll_turn(now) {
            let Some(number) = self.numbers.get(&ticket) else {
                self.events.push(ticket);
                continue;
            };
            self.turns.push((*number, turn));
            if turn == Turn::Go {
                self.under_way.push(ticket);
            }
        }
    }
}

fn to(access: Access) -> Destination {
    Destination {
        user: "".into(),
        group: "".into(),
        access,
    }
}

fn is_of_events(step: Move) -> bool {
    match step {
        Move::Ask(_, urgency) => urgency == Urgency::Event,
        Move::EndEvent(..) => true,
        Move::End(..) | Move::Pause(..) | Move::Wait(_) => false,
    }
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let urgency = prop_oneof![
        1 => Just(Urgency::Finish),
        1 => Just(Urgency::Read),
        1 => Just(Urgency::Begin),
        3 => Just(Urgency::Event),
    ];
    let signal = || {
        prop_oneof![
            6 => Just(LoadSignal::Answered),
            5 => Just(LoadSignal::Overloaded),
            1 => Just(LoadSignal::Unknown),
        ]
    };
    let access = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Event)];
    let wait = prop_oneof![10 => 0..50_u64, 1 => 1_000..40_000_u64];
    let next = prop_oneof![
        20 => (0..3_u8, urgency).prop_map(|(controller, urgency)| Move::Ask(controller, urgency)),
        10 => (any::<usize>(), signal()).prop_map(|(which, signal)| Move::End(which, signal)),
        8 => (any::<usize>(), signal()).prop_map(|(which, signal)| Move::EndEvent(which, signal)),
        1 => (access, 1..5_000_u64).prop_map(|(access, millis)| Move::Pause(access, millis)),
        8 => wait.prop_map(Move::Wait),
    ];
    prop::collection::vec(next, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn events_delay_no_other_request(moves in moves(), has_rate in any::<bool>()) {
        let rate = has_rate.then_some(Rate { per_second: 20.0, burst: 10 });
        let (mut with, mut without) = (Lane::new(rate), Lane::new(rate));
        let mut now = Instant::ZERO;
        for step in moves {
            if let Move::Wait(millis) = step {
                now = now.after(Duration::from_millis(millis));
            }
            with.go(step, now);
            if !is_of_events(step) {
                without.go(step, now);
            }
            prop_assert_eq!(&with.turns, &without.turns);
        }
    }
}
