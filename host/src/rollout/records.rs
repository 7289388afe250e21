//! Where rollouts are remembered: what a controller's status says, and the
//! specs that were active.

use std::path::PathBuf;

use crate::spec::ControllerSpec;
use crate::status::ControllerStatus;

/// Where rollouts are remembered.
pub enum Records {
    /// Nowhere beyond this process.
    Memory,
    /// In a directory.
    Directory(PathBuf),
}

/// What is remembered of a controller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remembered {
    /// What was said of it last.
    pub status: ControllerStatus,
    /// What its stable revision was made of.
    pub stable: Option<ControllerSpec>,
}
