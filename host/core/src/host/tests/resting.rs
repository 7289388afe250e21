//! Many controllers at rest: each round observes some of them.

use super::*;

/// More than two rounds observe.
const MANY: usize = 300;

fn name(number: usize) -> String {
    format!("team-{number:03}")
}

/// Controllers in dry run that have decided about one pod, and rest.
fn resting() -> Bench {
    let mut bench = Bench::new();
    let all = (0..MANY).map(|number| {
        let mut spec = spec(u64::try_from(number).unwrap(), &[]);
        spec.mode = crate::gate::Mode::DryRun;
        declaration(&name(number), spec)
    });
    bench.declare_all(all.collect());
    bench.list(&["a"]);
    bench.work(Duration::from_secs(10));
    bench
}

/// The names that the next round observes.
fn observed(bench: &mut Bench) -> BTreeSet<String> {
    bench.host.control.start_round();
    let names = (0..MANY).map(name);
    names
        .filter(|name| bench.host.control.observes(name))
        .collect()
}

#[test]
fn each_controller_at_rest_has_its_turn() {
    let mut bench = resting();
    let mut all = BTreeSet::new();
    for _ in 0..3 {
        let some = observed(&mut bench);
        assert_eq!(some.len(), MANY / 3);
        all.extend(some);
    }
    assert_eq!(all.len(), MANY);
}

#[test]
fn what_changes_without_an_input_is_in_the_status_after_a_turn() {
    let mut bench = resting();
    let is_degraded = |bench: &Bench, number: usize| {
        let conditions = &bench.records[&name(number)].status.conditions;
        let mut found = conditions.iter().filter(|one| one.type_ == "Degraded");
        found.any(|one| one.status == "True")
    };
    for failing in [0, 151, MANY - 1] {
        bench.failing = Some(u64::try_from(failing).unwrap());
        let pod = bench.object(&format!("pod-{failing}"));
        bench.update(Update::Apply(pod));
        bench.work(Duration::from_secs(60));
        assert!(is_degraded(&bench, failing), "{failing}");
    }
}

/// A controller that changes is observed at once, whoever has the turn.
#[test]
fn a_declaration_waits_for_no_turn() {
    let mut bench = resting();
    for number in [0, 1, 2, MANY - 1] {
        let all = (0..MANY).map(|each| {
            let mut spec = spec(u64::try_from(each).unwrap(), &[]);
            spec.mode = crate::gate::Mode::DryRun;
            if each <= number {
                spec.mode = crate::gate::Mode::Disabled;
            }
            Declaration {
                generation: Some(2 + i64::try_from(number).unwrap()),
                ..declaration(&name(each), spec)
            }
        });
        bench.declare_all(all.collect());
        let generation = bench.records[&name(number)].status.observed_generation;
        assert_eq!(generation, Some(2 + i64::try_from(number).unwrap()));
        bench.work(Duration::from_secs(5));
    }
}
