use super::*;
use crate::plot::Size;

fn plot(seed: u64, steps: usize) -> Plot {
    Plot::draw(
        seed,
        Size {
            steps,
            ..Size::default()
        },
    )
}

fn hash(seed: u64) -> u64 {
    let ending = run(&plot(seed, 80), false);
    assert_eq!(ending.problems, []);
    ending.hash
}

#[test]
fn a_seed_gives_the_same_trace_to_the_byte() {
    let other = hash(3);
    for seed in [1, 2] {
        let first = hash(seed);
        assert_eq!(first, hash(seed));
        assert_ne!(first, other);
    }
}

#[test]
fn a_trace_holds_every_line_that_the_hash_covers() {
    let plot = plot(1, 20);
    let kept = run(&plot, true);
    let dropped = run(&plot, false);
    assert_eq!(kept.hash, dropped.hash);
    assert!(dropped.trace.is_empty());
    let is_step = |line: &&String| line.contains("STEP");
    assert_eq!(kept.trace.iter().filter(is_step).count(), plot.steps.len());
}

#[test]
fn a_panic_is_a_problem_with_its_text_and_its_place() {
    let mut plot = plot(1, 5);
    plot.steps[2].event = Event::Bug(Bug::Violation);
    plot.steps[4].event = Event::Bug(Bug::Panic);
    let ending = run(&plot, true);
    let problems: Vec<String> = ending.problems.iter().map(ToString::to_string).collect();
    let [panic, violation] = problems.as_slice() else {
        panic!("{problems:?}");
    };
    assert!(
        panic.starts_with("panic at host/stories/src/story.rs:"),
        "{panic}"
    );
    assert!(panic.ends_with(": a bug of the host"), "{panic}");
    assert_eq!(violation, "a bug of the host");
    // The trace ends at the panic, and another run gives the same.
    let steps = ending.trace.iter().filter(|line| line.contains("STEP"));
    assert_eq!(steps.count(), 5);
    assert!(
        ending
            .trace
            .last()
            .is_some_and(|line| line.contains("PANIC: "))
    );
    assert_eq!(run(&plot, false).hash, ending.hash);
}
