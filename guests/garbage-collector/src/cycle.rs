//! Cycles of objects that wait for each other.
//!
//! An owner that is deleted in the foreground waits for the dependents that
//! block it. If these wait in the same way, and one of them is blocked by the
//! first, none is ever deleted. A cycle closes when its last member starts to
//! wait. The cache then shows all of them waiting, so the cycle is found
//! whichever member is reconciled, and whatever was missed before.

use std::collections::BTreeSet;
use std::rc::Rc;

use davit_guest::views::OwnerReference;

use crate::owner::Owners;
use crate::view::Item;

/// How many members of a cycle are followed. Real cycles are far smaller.
const MAX_MEMBERS: usize = 1000;

/// The references of an object through which it would wait for itself, if it
/// was deleted in the foreground. A reference to itself does not count: an
/// object does not wait for itself.
pub(crate) fn closing_references<'i>(
    item: &'i Item,
    owners: &mut Owners<'_>,
) -> Vec<&'i OwnerReference> {
    let references = item.view.metadata.owner_references.iter();
    references
        .filter(|reference| {
            blocked_owner(reference, item, owners).is_some_and(|it| leads_to(item, it, owners))
        })
        .collect()
}

/// Whether an owner that waits for the item blocks, directly or through other
/// owners, an owner that waits for the item.
fn leads_to(item: &Item, owner: Rc<Item>, owners: &mut Owners<'_>) -> bool {
    let uid = &item.reference.uid;
    let mut seen = BTreeSet::from([owner.reference.uid.clone()]);
    let mut left = vec![owner];
    while let Some(member) = left.pop() {
        for reference in &member.view.metadata.owner_references {
            let back = reference.uid == *uid && reference.blocks();
            if back && reference.means(&item.reference, &member.reference.namespace) {
                return true;
            }
            if seen.len() < MAX_MEMBERS
                && let Some(next) = blocked_owner(reference, &member, owners)
                && seen.insert(next.reference.uid.clone())
            {
                left.push(next);
            }
        }
    }
    false
}

/// The owner that this reference keeps from being deleted before the dependent,
/// if the owner waits for that.
fn blocked_owner(
    reference: &OwnerReference,
    dependent: &Item,
    owners: &mut Owners<'_>,
) -> Option<Rc<Item>> {
    if !reference.blocks() || reference.uid == dependent.reference.uid {
        return None;
    }
    let owner = owners.cached(&reference.uid)?;
    let means = reference.means(&owner.reference, &dependent.reference.namespace);
    (means && owner.view.metadata.waits_for_dependents()).then_some(owner)
}
