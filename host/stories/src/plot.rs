//! The plot of a story: its seed, its hosts and its steps.

use davit_simulation::Dice;

use crate::step::{self, Step};

/// What happens in a story.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) seed: u64,
    /// The number of hosts. Several elect a leader for each controller.
    pub(crate) hosts: usize,
    /// Whether the hosts take part in leader election.
    pub(crate) elects: bool,
    /// Whether every call of a guest is made again from the hosts' journals.
    pub(crate) replays: bool,
    pub(crate) steps: Vec<Step>,
}

/// How long a story is, how many hosts it has, and whether it is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) steps: usize,
    pub(crate) hosts: usize,
    pub(crate) replays: bool,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            steps: 80,
            hosts: 1,
            replays: true,
        }
    }
}

impl Size {
    /// The command that repeats the story of a seed.
    pub(crate) fn command(self, seed: u64) -> String {
        let usual = Self::default();
        let steps = (self.steps != usual.steps).then(|| format!(" --steps {}", self.steps));
        let hosts = (self.hosts != usual.hosts).then(|| format!(" --hosts {}", self.hosts));
        let replay = (self.replays != usual.replays).then(|| " --no-replay".to_owned());
        let [steps, hosts, replay] = [steps, hosts, replay].map(Option::unwrap_or_default);
        format!("cargo xtask simulate --seed {seed}{steps}{hosts}{replay}")
    }
}

impl Plot {
    /// The plot that a seed gives.
    pub(crate) fn draw(seed: u64, size: Size) -> Self {
        let mut dice = Dice::new(seed);
        let mut steps = step::draw(&mut dice, size.steps);
        if size.hosts > 1 {
            step::insert_replica_events(&mut dice, size.hosts, &mut steps);
        }
        Self {
            seed,
            hosts: size.hosts,
            replays: size.replays,
            // Every second single host, as if its replicas were gone.
            elects: size.hosts > 1 || Dice::new(seed.rotate_left(7)).chance(0.5),
            steps,
        }
    }
}
