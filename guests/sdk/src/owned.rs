//! Primary objects, and the objects that they own.

use serde::de::DeserializeOwned;

use crate::context::{Cache, Context};
use crate::dynamic::Value;
use crate::object::decode;
use crate::views::OwnerReference;
use crate::{
    Index, IndexName, Manifest, Object, ObjectRef, Patch, QueueName, Retry, Trigger, View, Watch,
    msgpack, value,
};

/// The path of the index that leads from an owner to its objects.
const OWNERS: &str = "metadata.ownerReferences[*].uid";

const fn by_owner<T>() -> IndexName<T> {
    IndexName::new("davit-owner")
}

/// The owners of an object.
#[derive(Default, View)]
struct Owned {
    #[view(path = "metadata.ownerReferences")]
    owners: Vec<OwnerReference>,
}

impl Owned {
    /// Whether the controller of an object of this namespace is this owner.
    fn is_controlled_by(&self, owner: &ObjectRef, namespace: &str) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|it| it.controller == Some(true) && it.means(owner, namespace))
    }
}

/// # Objects that own others
///
/// A controller of a custom resource has an item for each of its objects. The key of the item
/// is the object's uid: an object that is created again under the same name has another item.
///
/// ```
/// use davit_guest::{
///     Context, Decision, Identity, Manifest, QueueName, QueueSpec, Resource, Watch, WatchName,
///     WorkItem, resources,
/// };
///
/// const SITES: WatchName<Identity> = WatchName::new("sites");
/// const PAGES: WatchName<Identity> = WatchName::new("pages");
/// const QUEUE: QueueName = QueueName::new("sites");
/// const SITE: Resource = Resource::new("example.com", "v1", "sites");
///
/// fn manifest() -> Manifest {
///     Manifest::new("sites", "1.0.0", "Serves sites.")
///         .queue(QueueSpec::new(QUEUE))
///         .reconciles(Watch::of(SITES, SITE), QUEUE)
///         .owns(Watch::of(PAGES, resources::CONFIG_MAPS), QUEUE)
///         .applies(resources::CONFIG_MAPS)
/// }
///
/// fn pages_of(cx: &Context<'_>, item: &WorkItem) -> usize {
///     let site = cx.watch(SITES).get_by_uid(&item.key);
///     site.map_or(0, |site| cx.watch(PAGES).owned_by(&site.reference).count())
/// }
/// ```
impl Manifest {
    /// Adds a watch, and enqueues the uid of an object when it changes.
    #[must_use]
    pub fn reconciles<T: DeserializeOwned>(self, watch: Watch<T>, queue: QueueName) -> Self {
        let trigger = Trigger::own_uid(watch.name(), queue);
        self.watch(watch).trigger(trigger)
    }

    /// Adds a watch of objects that others own, and enqueues the uids of the owners when such
    /// an object changes, appears or disappears. [`Cache::owned_by`] reads the objects of an
    /// owner. The queue may get uids of owners of other kinds: an item whose uid the primary
    /// watch does not have is done.
    #[must_use]
    pub fn owns<T: DeserializeOwned>(self, watch: Watch<T>, queue: QueueName) -> Self {
        let watch = watch.with_fields_of::<Owned>();
        let watch = watch.index(Index::new(by_owner(), OWNERS));
        let trigger = Trigger::by_index(watch.name(), by_owner(), queue);
        self.watch(watch).trigger(trigger)
    }
}

impl<'a, T: DeserializeOwned> Cache<'a, T> {
    /// The objects whose controller is this owner, in a watch that the manifest
    /// [owns](Manifest::owns). A reference to another kind or group of the same uid, or from
    /// another namespace, is none to this owner.
    pub fn owned_by(&self, owner: &'a ObjectRef) -> impl Iterator<Item = Object<T>> + use<'a, T> {
        let objects = self.undecoded_by_index(by_owner(), &owner.uid);
        objects.filter_map(move |object| {
            let owned: Owned = msgpack::decode(&object.data).unwrap_or_default();
            let object = decode::<T>(object);
            let is_controlled = owned.is_controlled_by(owner, &object.reference.namespace);
            is_controlled.then_some(object)
        })
    }

    /// The object of this name among those that are [owned by](Self::owned_by) the owner.
    #[must_use]
    pub fn owned_named(&self, owner: &ObjectRef, name: &str) -> Option<Object<T>> {
        self.owned_by(owner).find(|it| it.reference.name == name)
    }
}

impl Context<'_> {
    /// Proves that the API server has no object of this kind and name, in the owner's
    /// namespace, that the owner controls. If it has one, the error retries the item: the
    /// cache lags behind.
    ///
    /// [`owned_named`](Cache::owned_named) is no proof: the cache may not have an object that
    /// was created a moment ago. So ask for this one before something ends that the object
    /// needs, such as its owner with the last [`Finalizer`](crate::Finalizer). The call waits
    /// for the answer. It needs the permission `get`: the manifest [reads the resource
    /// live](Manifest::reads_live).
    pub fn prove_gone(
        &self,
        owner: &ObjectRef,
        api_version: &str,
        kind: &str,
        name: &str,
    ) -> Result<(), Retry> {
        let target = ObjectRef::named(api_version, kind, &owner.namespace, name);
        let found = self.live::<Owned>(&target)?;
        if found.is_some_and(|it| it.view.is_controlled_by(owner, &owner.namespace)) {
            return Err(Retry::new(format!("{target} exists, but not in the cache")));
        }
        Ok(())
    }
}

impl Patch {
    /// Applies an object that this owner controls: `read` is the one that the owner has by
    /// now, if any. The configuration needs `apiVersion`, `kind` and the fields that the owner
    /// asks for. Its name is that of the object that was read, or else the owner's, unless it
    /// has another one. Its namespace is the owner's, unless that has none. Its only owner is
    /// this one.
    ///
    /// The fields of the object that was read are written whoever has changed them.
    /// Where there is none, it is created; an object of the name that the owner does not own
    /// stays as it is. It needs the verbs `patch` and `create` on the resource: the manifest
    /// [applies](Manifest::applies) it.
    ///
    /// ```
    /// use davit_guest::{Context, Identity, ObjectRef, Patch, WatchName, value};
    ///
    /// const PAGES: WatchName<Identity> = WatchName::new("pages");
    ///
    /// fn page(cx: &Context<'_>, site: &ObjectRef) -> Patch {
    ///     let read = cx.watch(PAGES).owned_named(site, &site.name);
    ///     let data = value!({"index.html": "<h1>Hello</h1>"});
    ///     let page = value!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    ///     Patch::apply_owned(site, read.as_ref(), page)
    /// }
    /// ```
    #[must_use]
    pub fn apply_owned<T>(
        owner: &ObjectRef,
        read: Option<&Object<T>>,
        mut configuration: Value,
    ) -> Self {
        let name = read.map_or(&owner.name, |read| &read.reference.name);
        let mut metadata = value!({"name": name});
        if let Some(Value::Map(given)) = configuration.get_mut("metadata").map(std::mem::take) {
            for (field, value) in given {
                metadata.set(&field, value);
            }
        }
        // The garbage collector would delete what a namespaced owner has elsewhere.
        if !owner.namespace.is_empty() {
            metadata.set("namespace", owner.namespace.as_str().into());
        }
        metadata.set("ownerReferences", value!([(owner.owner_reference())]));
        configuration.set("metadata", metadata);
        let patch = Self::apply(&configuration);
        match read {
            Some(read) => patch.only(&read.reference).force(),
            None => patch,
        }
    }
}

impl ObjectRef {
    /// The reference of an object that this one controls. The object is deleted with its
    /// owner.
    #[must_use]
    pub fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}

#[cfg(test)]
mod tests;
