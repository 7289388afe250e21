//! Controllers of a configuration file.

use serde_json::json;

use super::bench::NAME;
use super::revisions::spec;
use crate::api::ControllerStatus;
use crate::control::{
    Change, ChangeError, ChangeId, Control, ControlEffect, ControlInput, ControlSettings,
    FileController, Output,
};
use crate::record::{RecordId, StoredRecord};
use crate::time::{Instant, Now, Wall};

const NOW: Now = Now {
    instant: Instant::ZERO,
    wall: Wall(1_795_176_000_000),
};

/// A host whose file has one controller, whose record is being read.
fn reading() -> (Control<()>, RecordId) {
    let settings = ControlSettings {
        namespace: "davit".into(),
        host: None,
        trust: crate::trust::TrustPolicy {
            files: true,
            ..Default::default()
        },
        has_leases: false,
    };
    let mut control = Control::new(NOW, settings);
    let file = FileController {
        name: NAME.into(),
        spec: spec(1, &[]),
        loaded: None,
    };
    control.handle(NOW, ControlInput::File(vec![file]));
    let Some(Output::Effect(ControlEffect::ReadRecord { id, .. })) = control.poll() else {
        panic!("its record is read first");
    };
    (control, id)
}

/// The error with which a pause of this controller is refused immediately.
fn refusal(control: &mut Control<()>, name: &str) -> Option<String> {
    let pause = json!({"spec": {"rollout": {"paused": true}}});
    let change = ControlInput::Change {
        id: ChangeId(1),
        controller: name.into(),
        change: Change::read(&pause).unwrap(),
    };
    control.handle(NOW, change);
    while let Some(output) = control.poll() {
        if let Output::Effect(ControlEffect::Answer { result, .. }) = output {
            return result.err().map(|error| error.to_string());
        }
    }
    None
}

#[test]
fn a_controller_whose_record_is_being_read_is_not_unknown() {
    let (mut control, id) = reading();
    let reading = "the host is still reading the record of the controller \"podgc\": retry in \
                   a moment";
    assert_eq!(refusal(&mut control, NAME).as_deref(), Some(reading));
    let shown = control.file_controller(NAME);
    assert!(matches!(shown, Err(ChangeError::Reading(_))), "{shown:?}");
    assert!(
        control.file_controllers().is_err(),
        "the list would lack it"
    );
    let unknown = "the configuration file of this host has no controller \"other\"";
    assert_eq!(refusal(&mut control, "other").as_deref(), Some(unknown));

    let record = Box::new(StoredRecord {
        status: Ok(ControllerStatus::default()),
        version: None,
        paused: Some(Ok(false)),
    });
    control.handle(NOW, ControlInput::RecordRead { id, record });
    assert!(control.file_controller(NAME).is_ok());
    assert_eq!(control.file_controllers().unwrap().len(), 1);
    assert_eq!(refusal(&mut control, NAME), None, "it is being recorded");
}
