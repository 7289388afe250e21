//! Owner references across namespaces. They have no effect: an owner must be in
//! its dependent's namespace, or be cluster-scoped.

use davit_guest::Event;

use crate::owner::Owners;
use crate::view::Item;

/// The event source, as in kube-controller-manager.
const COMPONENT: &str = "garbage-collector-controller";

/// The event about the first reference of an object to an owner in another
/// namespace.
pub(crate) fn event(item: &Item, owners: &mut Owners<'_>) -> Option<Event> {
    let namespace = &item.reference.namespace;
    let mut references = item.view.metadata.owner_references.iter();
    let wrong = references.find(|reference| {
        owners.cached(&reference.uid).is_some_and(|owner| {
            let of_owner = &owner.reference.namespace;
            !of_owner.is_empty() && of_owner != namespace
        })
    })?;
    // Kubernetes' wording, with the dependent's namespace in both places.
    let message = format!(
        "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace \
         \"{namespace}\"",
        wrong.api_version, wrong.kind, wrong.name, wrong.uid
    );
    Some(Event::warning(
        "OwnerRefInvalidNamespace",
        message,
        COMPONENT,
    ))
}
