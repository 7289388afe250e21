//! What a measurement finds, and what it is held to.

use std::io::Write as _;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// One line of the table. Less is better, always.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
    /// The size of what was measured, if it was measured at several sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<Size>,
    /// The most that the value should be, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) aim: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) yardstick: Option<Yardstick>,
}

/// A number of pods, or of changes a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Size {
    pub(crate) value: f64,
    pub(crate) unit: String,
}

/// What a value is compared with: what somebody else needs for the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Yardstick {
    pub(crate) name: String,
    /// In the unit of the figure.
    pub(crate) value: f64,
    /// How many times of it the figure should be at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) aim: Option<f64>,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &str) -> Self {
        Self {
            name: name.into(),
            value,
            unit: unit.to_owned(),
            at: None,
            aim: None,
            yardstick: None,
        }
    }

    /// The value is one of a series.
    pub(crate) fn at(mut self, value: f64, unit: &str) -> Self {
        let unit = unit.to_owned();
        self.at = Some(Size { value, unit });
        self
    }

    /// Holds the value to an aim, if there is one.
    pub(crate) fn aim(mut self, aim: impl Into<Option<f64>>) -> Self {
        self.aim = aim.into();
        self
    }

    /// Compares the value, and holds the ratio to an aim if there is one.
    pub(crate) fn beside(mut self, name: &str, value: f64, aim: Option<f64>) -> Self {
        self.yardstick = Some(Yardstick {
            name: name.to_owned(),
            value,
            aim,
        });
        self
    }

    /// How many times of its yardstick it is.
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.value / self.yardstick.as_ref()?.value)
    }

    /// Whether it is within its aims; none without an aim.
    pub(crate) fn holds(&self) -> Option<bool> {
        let value = self.aim.map(|aim| self.value <= aim);
        let most = self.yardstick.as_ref().and_then(|one| one.aim);
        let ratio = most.and_then(|most| Some(self.ratio()? <= most));
        match (value, ratio) {
            (Some(value), Some(ratio)) => Some(value && ratio),
            (one, None) | (None, one) => one,
        }
    }

    /// Hands the figure to the process that prints the table.
    pub(crate) fn report(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, self)?;
        writeln!(out)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_holds_if_its_value_and_its_ratio_do() {
        let plain = Figure::new("a", 6.0, "µs");
        assert_eq!(plain.holds(), None);
        assert_eq!(plain.clone().aim(6.0).holds(), Some(true));
        assert_eq!(plain.clone().aim(5.0).holds(), Some(false));
        let beside = plain.aim(6.0).beside("b", 5.0, Some(1.3));
        assert_eq!((beside.ratio(), beside.holds()), (Some(1.2), Some(true)));
        assert_eq!(beside.beside("c", 4.0, Some(1.3)).holds(), Some(false));
    }
}
