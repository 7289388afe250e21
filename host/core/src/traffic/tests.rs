use super::limit::CEILING;
use super::*;

fn at(millis: u64) -> Instant {
    Instant::ZERO.after(Duration::from_millis(millis))
}

fn to(group: &str, access: Access) -> Destination {
    Destination {
        user: "".into(),
        group: group.into(),
        access,
    }
}

fn turn_request(controller: &str, urgency: Urgency) -> TurnRequest {
    let access = match urgency {
        Urgency::Event => Access::Event,
        Urgency::Read => Access::Read,
        Urgency::Begin | Urgency::Finish => Access::Write,
    };
    TurnRequest {
        controller: controller.into(),
        urgency,
        destination: to("", access),
    }
}

fn at_group(group: &str, urgency: Urgency) -> TurnRequest {
    let mut asked = turn_request("a", urgency);
    asked.destination.group = group.into();
    asked
}

fn rate(per_second: f64, burst: u32) -> Traffic {
    Traffic::new(Some(Rate { per_second, burst }))
}

/// The requests that may go now.
fn going(traffic: &mut Traffic, now: Instant) -> Vec<Ticket> {
    let turns = std::iter::from_fn(|| traffic.poll_turn(now));
    turns
        .map(|(ticket, turn)| {
            assert_eq!(turn, Turn::Go);
            ticket
        })
        .collect()
}

fn ask_many(traffic: &mut Traffic, asked: &TurnRequest, count: usize) -> Vec<Ticket> {
    (0..count)
        .map(|_| traffic.ask(asked.clone(), at(0)))
        .collect()
}

fn end(traffic: &mut Traffic, ticket: Ticket, now: Instant) {
    traffic.end(ticket, "get", LoadSignal::Answered, now);
}

#[test]
fn a_burst_is_sent_at_once_and_then_the_rate_holds() {
    let mut traffic = rate(10.0, 2);
    let tickets = ask_many(&mut traffic, &turn_request("a", Urgency::Begin), 4);
    assert_eq!(going(&mut traffic, at(0)), tickets[..2]);
    assert_eq!(traffic.poll_timeout(at(0)), Some(at(100)));
    assert_eq!(going(&mut traffic, at(99)), []);
    assert_eq!(going(&mut traffic, at(100)), tickets[2..3]);
    assert_eq!(going(&mut traffic, at(200)), tickets[3..]);
    assert_eq!(traffic.poll_timeout(at(200)), None);
}

#[test]
fn without_a_rate_only_the_limit_holds() {
    let mut traffic = Traffic::new(None);
    ask_many(&mut traffic, &turn_request("a", Urgency::Begin), 500);
    ask_many(&mut traffic, &turn_request("b", Urgency::Begin), 500);
    assert_eq!(going(&mut traffic, at(0)).len(), CEILING);
}

#[test]
fn started_plans_go_first_and_reads_and_other_plans_take_turns() {
    let mut traffic = rate(1.0, 1);
    let mut of = |urgency| ask_many(&mut traffic, &turn_request("a", urgency), 3);
    let begin = of(Urgency::Begin);
    let read = of(Urgency::Read);
    let finish = of(Urgency::Finish);
    let turns = (0..9).flat_map(|second| going(&mut traffic, at(second * 1000)));
    let turns: Vec<Ticket> = turns.collect();
    let both = read.into_iter().zip(begin);
    let others = both.flat_map(|(read, begin)| [read, begin]);
    let expected: Vec<Ticket> = finish.into_iter().chain(others).collect();
    assert_eq!(turns, expected);
}

#[test]
fn a_controller_has_half_of_the_limit_at_most() {
    let mut traffic = Traffic::new(None);
    let of_a = ask_many(&mut traffic, &turn_request("a", Urgency::Begin), 500);
    assert_eq!(going(&mut traffic, at(0)), of_a[..CEILING / 2]);
    let of_b = ask_many(&mut traffic, &turn_request("b", Urgency::Read), 3);
    assert_eq!(going(&mut traffic, at(1)), of_b);
    end(&mut traffic, of_a[0], at(2));
    assert_eq!(going(&mut traffic, at(2)), [of_a[CEILING / 2]]);
}

/// Whatever their lines contain, controllers send one request each in turn.
#[test]
fn controllers_take_turns_at_the_rate() {
    let mut traffic = rate(10.0, 1);
    let of_a = ask_many(&mut traffic, &turn_request("a", Urgency::Finish), 100);
    let of_b = ask_many(&mut traffic, &turn_request("b", Urgency::Begin), 3);
    let mut order = Vec::new();
    for tenth in 0..8_u64 {
        let now = at(100 * tenth);
        for ticket in going(&mut traffic, now) {
            order.push(ticket);
            // Long before the next token.
            end(&mut traffic, ticket, now);
        }
    }
    let expected = [
        of_a[0], of_b[0], of_a[1], of_b[1], of_a[2], of_b[2], of_a[3], of_a[4],
    ];
    assert_eq!(order, expected);
}

/// Requests that never end take places but no turns: the rate is the bottleneck.
#[test]
fn requests_without_an_end_cost_a_controller_no_turns() {
    let mut traffic = rate(10.0, 6);
    let hanging = ask_many(&mut traffic, &turn_request("a", Urgency::Begin), 5);
    assert_eq!(going(&mut traffic, at(0)), hanging);
    let of_a = ask_many(&mut traffic, &turn_request("a", Urgency::Begin), 10);
    let of_b = ask_many(&mut traffic, &turn_request("b", Urgency::Begin), 100);
    let mut order = Vec::new();
    for tenth in 0..10_u64 {
        let now = at(100 * tenth);
        for ticket in going(&mut traffic, now) {
            order.push(ticket);
            end(&mut traffic, ticket, now);
        }
    }
    let of = |tickets: &[Ticket]| order.iter().filter(|it| tickets.contains(it)).count();
    assert_eq!((of(&of_a), of(&of_b)), (5, 5));
}

#[test]
fn a_pause_holds_for_group_access_and_user_of_the_refused_request() {
    let mut traffic = Traffic::new(None);
    traffic.pause(
        to("example.com", Access::Write),
        Duration::from_secs(30),
        at(0),
    );
    let paused = traffic.ask(at_group("example.com", Urgency::Begin), at(0));
    let core = traffic.ask(at_group("", Urgency::Begin), at(0));
    let other = traffic.ask(at_group("example.org", Urgency::Begin), at(0));
    let read = traffic.ask(at_group("example.com", Urgency::Read), at(0));
    let mut by_other_user = at_group("example.com", Urgency::Begin);
    by_other_user.destination.user = "someone".into();
    let by_other_user = traffic.ask(by_other_user, at(0));
    let turns: BTreeMap<_, _> = std::iter::from_fn(|| traffic.poll_turn(at(0))).collect();
    let expected = [
        (paused, Turn::Paused(Duration::from_secs(30))),
        (core, Turn::Go),
        (other, Turn::Go),
        (read, Turn::Go),
        (by_other_user, Turn::Go),
    ];
    assert_eq!(turns, expected.into());
}

#[test]
fn a_short_pause_is_waited_for_and_a_long_one_is_not() {
    let mut traffic = Traffic::new(None);
    let waiting = traffic.ask(at_group("example.com", Urgency::Begin), at(0));
    traffic.pause(to("example.com", Access::Write), PATIENCE, at(0));
    // A shorter pause does not end it.
    traffic.pause(to("example.com", Access::Write), Duration::ZERO, at(0));
    assert_eq!(traffic.poll_turn(at(0)), None);
    assert_eq!(traffic.poll_timeout(at(0)), Some(at(2000)));
    assert_eq!(traffic.poll_turn(at(1999)), None);
    assert_eq!(traffic.poll_turn(at(2000)), Some((waiting, Turn::Go)));
    // A pause that arrives while a request waits.
    let waiting = traffic.ask(at_group("example.com", Urgency::Begin), at(2000));
    traffic.pause(
        to("example.com", Access::Write),
        Duration::from_secs(3),
        at(2000),
    );
    let turn = Turn::Paused(Duration::from_millis(2500));
    assert_eq!(traffic.poll_turn(at(2500)), Some((waiting, turn)));
}

#[test]
fn events_wait_while_anything_else_does() {
    let mut traffic = Traffic::new(None);
    let events = ask_many(&mut traffic, &turn_request("", Urgency::Event), 20);
    let writes = ask_many(
        &mut traffic,
        &turn_request("a", Urgency::Begin),
        CEILING / 2 + 2,
    );
    // Half of the limit is unused, and still no event is sent.
    assert_eq!(going(&mut traffic, at(0)), writes[..CEILING / 2]);
    end(&mut traffic, writes[0], at(1));
    assert_eq!(
        going(&mut traffic, at(1)),
        writes[CEILING / 2..=CEILING / 2]
    );
    end(&mut traffic, writes[1], at(2));
    let mut going = going(&mut traffic, at(2));
    assert_eq!(going.remove(0), writes[CEILING / 2 + 1]);
    assert_eq!(going, events[..MOST_EVENTS]);
}

#[test]
fn events_have_a_rate_of_their_own() {
    let mut traffic = rate(100.0, 50);
    let events = ask_many(&mut traffic, &turn_request("", Urgency::Event), 100);
    let mut sent = 0;
    for tenth in 0..20_u64 {
        let now = at(100 * tenth);
        for ticket in going(&mut traffic, now) {
            assert_eq!(ticket, events[sent]);
            sent += 1;
            end(&mut traffic, ticket, now);
        }
    }
    // A burst of 10, then 20 a second for 1.9 s; at most 8 at once.
    assert_eq!(sent, 10 + 38);
    let writes = ask_many(&mut traffic, &turn_request("a", Urgency::Begin), 50);
    assert_eq!(
        going(&mut traffic, at(1900)),
        writes,
        "the rate is not theirs"
    );
}

#[test]
fn long_waiting_events_go_between_other_requests_one_at_a_time() {
    let mut traffic = Traffic::new(None);
    let events = ask_many(&mut traffic, &turn_request("", Urgency::Event), 3);
    ask_many(&mut traffic, &turn_request("a", Urgency::Begin), 1_000);
    assert_eq!(going(&mut traffic, at(9_999)).len(), CEILING / 2);
    assert_eq!(traffic.poll_timeout(at(9_999)), Some(at(10_000)));
    assert_eq!(going(&mut traffic, at(10_000)), events[..1]);
    end(&mut traffic, events[0], at(10_001));
    assert_eq!(going(&mut traffic, at(10_001)), events[1..2]);
}

#[test]
fn events_wait_for_any_pause() {
    let mut traffic = Traffic::new(None);
    let events = ask_many(&mut traffic, &turn_request("", Urgency::Event), 3);
    traffic.pause(to("", Access::Event), Duration::from_secs(30), at(0));
    assert_eq!(traffic.poll_turn(at(29_999)), None);
    assert_eq!(going(&mut traffic, at(30_000)), events);
}

#[test]
fn a_flush_sends_events_without_their_rate() {
    let mut traffic = rate(10.0, 10);
    ask_many(&mut traffic, &turn_request("", Urgency::Event), 40);
    assert_eq!(going(&mut traffic, at(0)).len(), 2);
    traffic.flush_events();
    assert_eq!(going(&mut traffic, at(0)).len(), 38);
}

#[test]
fn a_dropped_request_leaves_its_line_or_place() {
    let mut traffic = Traffic::new(None);
    let tickets = ask_many(
        &mut traffic,
        &turn_request("a", Urgency::Begin),
        CEILING / 2 + 2,
    );
    let mut left = going(&mut traffic, at(0));
    traffic.end(tickets[CEILING / 2], "", LoadSignal::Unknown, at(0));
    traffic.end(left.remove(0), "", LoadSignal::Unknown, at(0));
    assert_eq!(going(&mut traffic, at(0)), tickets[CEILING / 2 + 1..]);
    for ticket in tickets {
        traffic.end(ticket, "", LoadSignal::Unknown, at(0));
    }
    assert!(traffic.lines.is_empty() && traffic.waiting.is_empty());
    assert!(traffic.under_way.is_empty());
    assert_eq!(traffic.controllers["a"].under_way, 0);
}

#[test]
fn an_overload_leaves_fewer_places() {
    let mut traffic = Traffic::new(None);
    let first = ask_many(
        &mut traffic,
        &turn_request("a", Urgency::Begin),
        CEILING / 2,
    );
    assert_eq!(going(&mut traffic, at(0)), first);
    for ticket in first {
        traffic.end(ticket, "patch", LoadSignal::Overloaded, at(10));
    }
    assert_eq!(traffic.allowed(), CEILING / 2);
    ask_many(&mut traffic, &turn_request("a", Urgency::Begin), CEILING);
    assert_eq!(going(&mut traffic, at(10)).len(), CEILING / 4);
}
