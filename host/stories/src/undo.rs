//! Stories whose specs name what is kept before it is deleted.

use std::collections::BTreeMap;

use davit_core::api::{ControllerSpec, UndoConfig};
use davit_core::undo::UndoKind;
use davit_simulation::{Conditions, Dice, Simulation, UndoneKinds};

use crate::event::{Kind, WIDGETS_VERSION};

/// Distinguishes these draws from those of the story, which stays as it is without undo.
const STREAM: u64 = 0x756e_646f;
/// How many stories have undo.
const SHARE: f64 = 0.25;
/// The kinds that each controller deletes.
const DELETED: [(&str, &[Kind]); 4] = [
    ("podgc", &[Kind::Pod]),
    ("garbage-collector", &Kind::ALL),
    ("taint-eviction", &[Kind::Pod]),
    ("node-eviction", &[Kind::Pod]),
];

/// What the specs of a story keep, and how well the journal's disk works.
#[derive(Debug)]
pub(crate) struct Undo {
    dice: Dice,
    kinds: BTreeMap<&'static str, Vec<Kind>>,
}

impl Undo {
    /// What the story of a seed keeps. Most keep nothing.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ STREAM);
        let mut kinds = BTreeMap::new();
        if dice.chance(SHARE) {
            for (controller, deleted) in DELETED {
                let kept = deleted.iter().copied().filter(|_| dice.chance(0.7));
                kinds.insert(controller, kept.collect());
            }
        }
        Self { dice, kinds }
    }

    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.values().all(Vec::is_empty)
    }

    /// The objects that are kept, as the world checks it.
    pub(crate) fn expected(&self) -> UndoneKinds {
        let all = self.kinds.iter().map(|(controller, kinds)| {
            let kinds = kinds.iter().map(|kind| kind.kind().to_owned());
            ((*controller).to_owned(), kinds.collect())
        });
        all.collect()
    }

    /// Names them in the spec of a controller.
    pub(crate) fn apply(&self, controller: &str, spec: &mut ControllerSpec) {
        let kinds = self.kinds.get(controller).into_iter().flatten();
        let kinds = kinds.map(|kind| UndoKind {
            group: match kind {
                Kind::Pod | Kind::ConfigMap => String::new(),
                Kind::Widget => {
                    let (group, _) = WIDGETS_VERSION.split_once('/').unwrap_or_default();
                    group.to_owned()
                }
            },
            resource: kind.plural().to_owned(),
        });
        spec.undo = UndoConfig {
            kinds: kinds.collect(),
            ..UndoConfig::default()
        };
    }

    /// Whether a status says that deletions are deferred. It says so for a while after their targets
    /// are gone, or are not to be deleted any more.
    pub(crate) fn is_deferred(&self, simulation: &Simulation) -> bool {
        let mut statuses = self.kinds.keys();
        statuses.any(|name| {
            let status = simulation.world.records().status(name);
            let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
            conditions.any(|one| one.reason == "DeletesDeferred")
        })
    }

    /// The journal's disk becomes full or slow, or works again.
    pub(crate) fn disturb(&mut self, conditions: &mut Conditions) {
        if self.is_empty() || !self.dice.chance(0.15) {
            return;
        }
        conditions.no_copies = self.dice.one_of(&[0.0, 0.0, 0.3, 1.0]);
        conditions.slow_copies = self.dice.one_of(&[0.0, 0.5, 1.0]);
    }
}
