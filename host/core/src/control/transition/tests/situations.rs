//! The table in every situation, and in docs/rollouts.md.

use super::*;
use crate::control::transition::table::{ROWS, StateKind, row};

/// Every state, with every combination of what a row can depend on.
fn situations() -> Vec<(Rollout, Circumstances)> {
    let lost_states = known()
        .into_iter()
        .flat_map(|before| [false, true].map(|is_updated| lost(before.clone(), is_updated)));
    let states: Vec<Rollout> = [Rollout::New]
        .into_iter()
        .chain(known())
        .chain(lost_states)
        .collect();
    let described = [None, Some("a"), Some("b"), Some("c")];
    let failures = [None, Some(failed(false)), Some(failed(true))];
    let mut all = Vec::new();
    for (state, described) in states
        .iter()
        .flat_map(|one| described.map(|two| (one, two)))
    {
        for (failure, flags) in failures
            .iter()
            .flat_map(|one| (0..128_u32).map(move |two| (one, two)))
        {
            let is_set = |bit: u32| flags & (1 << bit) != 0;
            let now = Circumstances {
                stable_loaded: is_set(0),
                is_superseded: is_set(1),
                described: described.map(revision),
                steps: if is_set(2) { steps() } else { Vec::new() },
                failure: failure.clone(),
                is_update: is_set(3),
                requests: OperatorRequests {
                    abandon: is_set(4),
                    swap: is_set(5),
                    retry: is_set(6),
                },
            };
            all.push((state.clone(), now));
        }
    }
    all
}

/// The state that a row of the table leads to.
fn destination(transition: &Transition, before: &Rollout) -> StateKind {
    match transition {
        Transition::Lose => StateKind::Lost,
        Transition::Start => StateKind::RollingOut,
        Transition::Recover => StateKind::of(before.known()),
        _ => StateKind::Stable,
    }
}

#[test]
fn each_row_applies_in_each_of_its_states_and_leads_where_it_says() {
    let mut missing: Vec<(usize, StateKind)> = (0..ROWS.len())
        .flat_map(|index| ROWS[index].states.iter().map(move |state| (index, *state)))
        .collect();
    for (state, now) in situations() {
        for phase in [Phase::Stable, Phase::Candidate] {
            let Some(winner) = row(phase, &state, &now) else {
                continue;
            };
            let kind = StateKind::of(&state);
            let winner_index = ROWS
                .iter()
                .position(|row| std::ptr::eq(row, winner))
                .unwrap();
            missing.retain(|one| *one != (winner_index, kind));
            let mut after = state.clone();
            apply(&mut after, winner.transition.clone(), &now, &mut Vec::new());
            let expected = destination(&winner.transition, &state);
            assert_eq!(StateKind::of(&after), expected, "{state:?} {now:?}");
            let keeps = matches!(
                winner.transition,
                Transition::Lose | Transition::Recover | Transition::Start | Transition::End
            );
            let same = after.stable() == state.stable();
            assert!(
                same || !keeps,
                "the stable revision changes: {state:?} {now:?}"
            );
        }
    }
    assert!(missing.is_empty(), "rows that never apply: {missing:?}");
}

#[test]
fn a_reconcile_comes_to_rest() {
    for (mut state, mut now) in situations() {
        let mut changes = 0;
        while let Some(transition) = next(Phase::Stable, &state, &now) {
            apply(&mut state, transition, &now, &mut Vec::new());
            now.stable_loaded |= matches!(state, Rollout::Stable { .. });
            changes += 1;
            assert!(changes < 3, "{state:?} {now:?}");
        }
    }
}

/// The rows in docs/rollouts.md: condition, next state and event.
const TEXTS: [[&str; 3]; 11] = [
    ["the first revision is loaded", "Stable, with it", ""],
    ["the stable revision is loaded", "the former state", ""],
    [
        "abandoned, and the revision that the spec describes is loaded",
        "Stable, with it",
        "`Promoted`",
    ],
    [
        "swap, and the revision that the spec describes is loaded, the stable one not",
        "Stable, with it",
        "`Swapped`",
    ],
    [
        "an update of Davit, and nothing else",
        "Stable, with it",
        "`Updated` (Warning)",
    ],
    [
        "after a start, the stable revision cannot be loaded",
        "[Lost](#lost)",
        "",
    ],
    [
        "the spec describes another revision, which is loaded and may not run",
        "Stable, as before",
        "`RolloutEnded`",
    ],
    [
        "the spec describes the stable revision",
        "Stable, as before",
        "`RolloutEnded`, if there was a candidate",
    ],
    [
        "swap, and the spec describes another revision than the stable one",
        "Stable, with it",
        "`Swapped`",
    ],
    [
        "the spec describes a new revision, with steps; or retry",
        "RollingOut, step 1, with it",
        "`RolloutStarted`",
    ],
    ["the same, without steps", "Stable, with it", "`Swapped`"],
];

#[test]
fn the_documentation_has_each_row_in_this_order() {
    let page = include_str!("../../../../../../docs/rollouts.md");
    let (_, table) = page.split_once("| in | when | becomes | event |").unwrap();
    let mut lines = table.lines();
    for phase in [Phase::Stable, Phase::Candidate] {
        for (row, text) in ROWS.iter().zip(TEXTS).filter(|(row, _)| row.phase == phase) {
            let states: Vec<String> = row
                .states
                .iter()
                .map(|state| format!("{state:?}"))
                .collect();
            let [when, becomes, event] = text;
            let line = format!("| {} | {when} | {becomes} | {event} |", states.join(", "));
            let line = line.replace("|  |", "| |");
            assert!(lines.any(|one| one == line), "in this place: {line}");
        }
    }
}
