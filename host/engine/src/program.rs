//! A component that is linked, and how an instance of it is made.

use wasmtime::Store;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Type, TypedFunc};

use crate::convert::Encoding;
use crate::state::State;
use crate::wit::{Controller, ControllerIndices, LiveFields, TriggerCondition};

/// The optional interface in which a guest names its encoding, and its one function.
const PAYLOADS: &str = "davit:controller/payloads@0.1.0";
const ENCODING: &str = "encoding";
/// The optional interface in which a guest says which objects its triggers are about.
const CONDITIONS: &str = "davit:controller/conditions@0.1.0";
const TRIGGER_CONDITIONS: &str = "trigger-conditions";

/// The optional interface in which a guest names the fields of its live reads.
const READS: &str = "davit:controller/reads@0.1.0";
const LIVE_READS: &str = "live-reads";

/// The functions of these interfaces.
pub(crate) type ConditionsFunction = TypedFunc<(), (Vec<TriggerCondition>,)>;
pub(crate) type ReadsFunction = TypedFunc<(), (Vec<LiveFields>,)>;

/// A component that is checked and linked. Clones are the same component.
#[derive(Clone)]
pub(crate) struct Program {
    pre: InstancePre<State>,
    indices: ControllerIndices,
    /// The function that names the guest's encoding; none in a guest that uses MessagePack.
    encoding: Option<ComponentExportIndex>,
    /// The function that returns the conditions of triggers; none in a guest without any.
    conditions: Option<ComponentExportIndex>,
    /// The function that returns the fields of live reads; none in a guest that names none.
    reads: Option<ComponentExportIndex>,
}

/// What an instance exports.
pub(crate) struct Exports {
    pub(crate) controller: Controller,
    pub(crate) encoding: Encoding,
    pub(crate) conditions: Option<ConditionsFunction>,
    pub(crate) reads: Option<ReadsFunction>,
}

/// Why an instance has no encoding.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The instance trapped, or exceeded a limit.
    Failed(wasmtime::Error),
    /// It names an encoding that this host does not know.
    Encoding(String),
}

impl Program {
    /// Finds the exports. The error says which one has another type.
    pub(crate) fn new(pre: InstancePre<State>) -> wasmtime::Result<Self> {
        let indices = ControllerIndices::new(&pre)?;
        let encoding = encoding(pre.component())?;
        let conditions = function_of(pre.component(), CONDITIONS, TRIGGER_CONDITIONS)?;
        let reads = function_of(pre.component(), READS, LIVE_READS)?;
        Ok(Self {
            pre,
            indices,
            encoding,
            conditions,
            reads,
        })
    }

    pub(crate) fn component(&self) -> &Component {
        self.pre.component()
    }

    pub(crate) fn engine(&self) -> &wasmtime::Engine {
        self.pre.engine()
    }

    /// Creates an instance and asks it for its encoding.
    pub(crate) async fn instantiate(
        &self,
        store: &mut Store<State>,
    ) -> Result<Exports, StartError> {
        let instance = self.pre.instantiate_async(&mut *store).await?;
        let encoding = match &self.encoding {
            None => Encoding::default(),
            Some(export) => {
                let named = instance.get_typed_func::<(), (String,)>(&mut *store, export)?;
                let (name,) = named.call_async(&mut *store, ()).await?;
                Encoding::named(&name).ok_or(StartError::Encoding(name))?
            }
        };
        let conditions = match &self.conditions {
            None => None,
            Some(export) => Some(instance.get_typed_func(&mut *store, export).map_err(
                |error| {
                    error.context(format!(
                        "{CONDITIONS} has no function {TRIGGER_CONDITIONS} that returns conditions"
                    ))
                },
            )?),
        };
        let reads = match &self.reads {
            None => None,
            Some(export) => Some(instance.get_typed_func(&mut *store, export).map_err(
                |error| {
                    error.context(format!(
                        "{READS} has no function {LIVE_READS} that returns fields"
                    ))
                },
            )?),
        };
        Ok(Exports {
            controller: self.indices.load(store, &instance)?,
            encoding,
            conditions,
            reads,
        })
    }
}

impl From<wasmtime::Error> for StartError {
    fn from(error: wasmtime::Error) -> Self {
        Self::Failed(error)
    }
}

/// The function that names the encoding, if the component exports the interface.
fn encoding(component: &Component) -> wasmtime::Result<Option<ComponentExportIndex>> {
    let Some(interface) = component.get_export_index(None, PAYLOADS) else {
        return Ok(None);
    };
    if let Some((ComponentItem::ComponentFunc(function), index)) =
        component.get_export(Some(&interface), ENCODING)
        && function.params().len() == 0
        && function.results().eq([Type::String])
    {
        return Ok(Some(index));
    }
    Err(wasmtime::Error::msg(format!(
        "{PAYLOADS} has no function {ENCODING} that returns a string"
    )))
}

/// The function of an interface, if the component exports the interface.
fn function_of(
    component: &Component,
    interface: &str,
    function: &str,
) -> wasmtime::Result<Option<ComponentExportIndex>> {
    let Some(exported) = component.get_export_index(None, interface) else {
        return Ok(None);
    };
    let found = component.get_export_index(Some(&exported), function);
    found
        .map(Some)
        .ok_or_else(|| wasmtime::Error::msg(format!("{interface} has no function {function}")))
}
