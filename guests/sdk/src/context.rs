//! What a guest can read while it decides.

use std::marker::PhantomData;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::bindings::davit::controller::{
    cache::{KeyPage, OrderedPage, Page},
    live::GetRequest,
    mapping, queue, types,
};
use crate::decision::report_key;
use crate::object::decode;
use crate::{
    Failure, IndexKey, IndexName, Instant, Level, ListRequest, Object, ObjectRef, PendingItem,
    Place, QueueName, Report, ResourceMapping, Retry, UnlistedResource, WatchName, fields_of,
    msgpack,
};

/// The number of objects or keys in one page from the host. A pod takes some
/// 300 bytes here: a page stays far below a guest's memory limit.
const PAGE: u32 = 500;
/// The first page of what is usually read for its first objects only, and how much longer
/// each next page is.
const FIRST_PAGE: u32 = 16;
const PAGE_GROWTH: u32 = 4;

/// One call's view of the cluster: a consistent snapshot of the watches, live
/// reads, the controller's queues and notes, and its log.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    now: Instant,
    host: &'a dyn Host,
}

/// The functions that a guest imports. The component and the test harness
/// implement them.
#[doc(hidden)]
pub trait Host {
    fn len(&self, watch: &str) -> u64;
    fn get(&self, watch: &str, key: &str) -> Option<types::Object>;
    fn get_by_uid(&self, watch: &str, uid: &str) -> Option<types::Object>;
    fn by_index(&self, watch: &str, index: &str, value: &str, cursor: u64, limit: u32) -> Page;
    fn in_order(
        &self,
        watch: &str,
        index: &str,
        value: &str,
        after: Option<&Place>,
        limit: u32,
    ) -> OrderedPage;
    fn index_count(&self, watch: &str, index: &str, value: &str) -> u32;
    fn index_keys(
        &self,
        watch: &str,
        index: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Vec<IndexKey>;
    fn values_without(
        &self,
        index: (&str, &str),
        other: (&str, &str),
        after: Option<&str>,
        limit: u32,
    ) -> Vec<String>;
    fn keys(&self, watch: &str, cursor: u64, limit: u32) -> KeyPage;
    fn scan(&self, watch: &str, cursor: u64, limit: u32) -> Page;
    fn live_get(&self, requests: &[GetRequest]) -> Vec<Result<types::Object, types::Failure>>;
    fn live_list(&self, request: &ListRequest) -> Result<Vec<types::Object>, types::Failure>;
    fn lookup(&self, api_version: &str, kind: &str) -> Option<ResourceMapping>;
    fn unlisted(&self, watch: &str) -> Vec<mapping::UnlistedResource>;
    fn pending(&self, queue: &str, key: &str) -> Option<queue::PendingItem>;
    fn note(&self, key: &str) -> Option<Vec<u8>>;
    fn log(&self, level: Level, message: &str, fields: &[(String, String)]);
}

impl<'a> Context<'a> {
    pub(crate) fn new(now: Instant, host: &'a dyn Host) -> Self {
        Self { now, host }
    }

    /// The time of this call. It does not change during the call.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The time since an instant; zero if the instant is in the future.
    #[must_use]
    pub fn since(&self, start: Instant) -> Duration {
        self.now - start
    }

    /// The cached objects of a watch. All watches show one state of the
    /// cluster, at least as new as the change that enqueued the item.
    #[must_use]
    pub fn watch<T>(&self, name: WatchName<T>) -> Cache<'a, T> {
        Cache {
            host: self.host,
            watch: name.as_str(),
            view: PhantomData,
        }
    }

    /// Reads objects from the API server in parallel. Returns one result for
    /// each target, in the order of the targets. The call waits for the answer.
    /// Needs the permission `get`.
    #[must_use]
    pub fn live_get<T: DeserializeOwned>(
        &self,
        targets: &[ObjectRef],
    ) -> Vec<Result<Object<T>, Failure>> {
        self.live_get_fields(targets, &fields_of::<T>())
    }

    /// Reads one object from the API server; none if it does not exist. The call waits
    /// for the answer. Needs the permission `get`. Any other failure is an error that
    /// retries the item.
    ///
    /// ```
    /// # use davit_guest::{Context, Decision, Identity, ObjectRef, Retry, WorkItem};
    /// fn reconcile(cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
    ///     let node = ObjectRef::named("v1", "Node", "", &item.key);
    ///     if cx.live::<Identity>(&node)?.is_none() {
    ///         // …
    ///     }
    ///     Ok(Decision::done())
    /// }
    /// ```
    pub fn live<T: DeserializeOwned>(
        &self,
        target: &ObjectRef,
    ) -> Result<Option<Object<T>>, Retry> {
        self.live_fields(target, &fields_of::<T>())
    }

    /// Reads these fields of one object from the API server, like [`live`](Self::live).
    pub fn live_fields<T: DeserializeOwned>(
        &self,
        target: &ObjectRef,
        fields: &[String],
    ) -> Result<Option<Object<T>>, Retry> {
        let targets = std::slice::from_ref(target);
        match self.live_get_fields(targets, fields).pop() {
            Some(Ok(object)) => Ok(Some(object)),
            Some(Err(failure)) if failure.is_gone() => Ok(None),
            Some(Err(failure)) => Err(failure.of_read(target)),
            None => Err(Retry::new("the host gave no answer")),
        }
    }

    /// Reads these fields of objects from the API server, like [`live_get`](Self::live_get).
    #[must_use]
    pub fn live_get_fields<T: DeserializeOwned>(
        &self,
        targets: &[ObjectRef],
        fields: &[String],
    ) -> Vec<Result<Object<T>, Failure>> {
        let requests: Vec<GetRequest> = targets
            .iter()
            .map(|target| GetRequest {
                target: target.clone(),
                fields: fields.to_vec(),
            })
            .collect();
        let results = self.host.live_get(&requests).into_iter();
        results
            .map(|it| it.map(decode).map_err(Into::into))
            .collect()
    }

    /// Lists a resource at the API server, with the fields of the view. Needs
    /// the permission `list`.
    pub fn live_list<T: DeserializeOwned>(
        &self,
        request: ListRequest,
    ) -> Result<Vec<Object<T>>, Failure> {
        self.live_list_fields(&ListRequest {
            fields: fields_of::<T>(),
            ..request
        })
    }

    /// Lists a resource at the API server, with the fields of the request, like
    /// [`live_list`](Self::live_list).
    pub fn live_list_fields<T: DeserializeOwned>(
        &self,
        request: &ListRequest,
    ) -> Result<Vec<Object<T>>, Failure> {
        let objects = self.host.live_list(request).map_err(Failure::from)?;
        Ok(objects.into_iter().map(decode).collect())
    }

    /// The resource of a kind; none if the server does not serve the kind.
    #[must_use]
    pub fn lookup(&self, api_version: &str, kind: &str) -> Option<ResourceMapping> {
        self.host.lookup(api_version, kind)
    }

    /// The item with this key, if it is in the queue.
    #[must_use]
    pub fn pending(&self, queue: QueueName, key: &str) -> Option<PendingItem> {
        self.host.pending(queue.as_str(), key).map(Into::into)
    }

    /// The value that the command [`SetNote`](crate::SetNote) last wrote under
    /// this key; none, too, if another revision wrote a value that is not an
    /// `N`.
    #[must_use]
    pub fn note<N: DeserializeOwned>(&self, key: &str) -> Option<N> {
        msgpack::decode(&self.host.note(key)?).ok()
    }

    /// What the command [`report`](crate::Command::report) last wrote under this name.
    #[must_use]
    pub fn report(&self, name: &str) -> Option<Report> {
        self.note(&report_key(name))
    }

    /// Writes to the host's log.
    pub fn log(&self, level: Level, message: &str, fields: &[(&str, &str)]) {
        let fields: Vec<(String, String)> = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        self.host.log(level, message, &fields);
    }
}

/// The objects of one watch, as this call sees them.
///
/// An object that does not fit the view ends the call with a trap that names
/// the object. If the guest took it for absent, it could delete what is still
/// needed.
pub struct Cache<'a, T> {
    host: &'a dyn Host,
    watch: &'static str,
    view: PhantomData<fn() -> T>,
}

impl<'a, T: DeserializeOwned> Cache<'a, T> {
    /// The number of objects in the watch.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.host.len(self.watch)
    }

    /// Whether the watch has no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The object with this key: `namespace/name`, or `name` for a
    /// cluster-scoped resource.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Object<T>> {
        self.host.get(self.watch, key).map(decode)
    }

    /// The object with this uid.
    #[must_use]
    pub fn get_by_uid(&self, uid: &str) -> Option<Object<T>> {
        self.host.get_by_uid(self.watch, uid).map(decode)
    }

    /// The objects that an index holds under a value.
    pub fn by_index(
        &self,
        index: IndexName<T>,
        value: &'a str,
    ) -> impl Iterator<Item = Object<T>> + use<'a, T> {
        self.undecoded_by_index(index, value).map(decode)
    }

    /// The same as the host has them: with the fields of other views too.
    pub(crate) fn undecoded_by_index(
        &self,
        index: IndexName<T>,
        value: &'a str,
    ) -> impl Iterator<Item = types::Object> + use<'a, T> {
        let (host, watch, index) = (self.host, self.watch, index.as_str());
        pages(move |cursor| {
            let page = host.by_index(watch, index, value, cursor, PAGE);
            (page.objects, page.next)
        })
    }

    /// The objects that an index holds under a value, in the index's order,
    /// after a place or from the start. The iterator copies objects as it
    /// advances, a few at first, so an iterator that ends early costs little.
    pub fn in_order(
        &self,
        index: IndexName<T>,
        value: &'a str,
        after: Option<Place>,
    ) -> impl Iterator<Item = Object<T>> + use<'a, T> {
        let (host, watch, index) = (self.host, self.watch, index.as_str());
        let mut rest = Some(after);
        let mut limit = FIRST_PAGE;
        std::iter::from_fn(move || {
            let after = rest.take()?;
            let page = host.in_order(watch, index, value, after.as_ref(), limit);
            rest = page.next.map(Some);
            limit = limit.saturating_mul(PAGE_GROWTH).min(PAGE);
            Some(page.objects)
        })
        .flatten()
        .map(decode)
    }

    /// One page of the objects that an index holds under a value: at most
    /// `limit`, from `cursor` on (0 for the first page). Also returns where the
    /// next page starts. For a walk that continues in another call, or that
    /// usually ends early.
    #[must_use]
    pub fn index_page(
        &self,
        index: IndexName<T>,
        value: &str,
        cursor: u64,
        limit: u32,
    ) -> (Vec<Object<T>>, Option<u64>) {
        let index = index.as_str();
        let page = self.host.by_index(self.watch, index, value, cursor, limit);
        let objects = page.objects.into_iter().map(decode).collect();
        (objects, page.next)
    }

    /// The number of objects that an index holds under a value.
    #[must_use]
    pub fn index_count(&self, index: IndexName<T>, value: &str) -> u32 {
        self.host.index_count(self.watch, index.as_str(), value)
    }

    /// The values of an index in byte order, with the number of objects for
    /// each.
    pub fn index_keys(&self, index: IndexName<T>) -> impl Iterator<Item = IndexKey> + use<'a, T> {
        let (host, watch, index) = (self.host, self.watch, index.as_str());
        pages_by_value(
            None,
            move |after| host.index_keys(watch, index, after, PAGE),
            |key| &key.value,
        )
    }

    /// The values of an index that an index of another watch lacks, in byte order, after a
    /// value or from the start. It copies no other value: with pods by the names of their
    /// nodes and nodes by their names, these are the names of the missing nodes.
    pub fn values_without<O>(
        &self,
        index: IndexName<T>,
        other_watch: WatchName<O>,
        other_index: IndexName<O>,
        after: Option<String>,
    ) -> impl Iterator<Item = String> + use<'a, T, O> {
        let (host, index) = (self.host, (self.watch, index.as_str()));
        let other = (other_watch.as_str(), other_index.as_str());
        pages_by_value(
            after,
            move |after| host.values_without(index, other, after, PAGE),
            |value| value,
        )
    }

    /// The keys of the watch.
    pub fn keys(&self) -> impl Iterator<Item = String> + use<'a, T> {
        let (host, watch) = (self.host, self.watch);
        pages(move |cursor| {
            let page = host.keys(watch, cursor, PAGE);
            (page.keys, page.next)
        })
    }

    /// The resources of the watch that the cache does not cover: an object of
    /// them may exist even if the cache does not have it.
    #[must_use]
    pub fn unlisted(&self) -> Vec<UnlistedResource> {
        let resources = self.host.unlisted(self.watch).into_iter();
        resources.map(Into::into).collect()
    }

    /// One page of all objects of the watch: at most `limit`, from `cursor` on (0 for the
    /// first page). Also returns where the next page starts.
    #[must_use]
    pub fn scan_page(&self, cursor: u64, limit: u32) -> (Vec<Object<T>>, Option<u64>) {
        let page = self.host.scan(self.watch, cursor, limit);
        let objects = page.objects.into_iter().map(decode).collect();
        (objects, page.next)
    }

    /// All objects of the watch. It copies every object: prefer an index.
    pub fn scan(&self) -> impl Iterator<Item = Object<T>> + use<'a, T> {
        let (host, watch) = (self.host, self.watch);
        pages(move |cursor| {
            let page = host.scan(watch, cursor, PAGE);
            (page.objects, page.next)
        })
        .map(decode)
    }
}

/// The elements of a paged answer. Each page is read when it is needed.
fn pages<E>(mut read_page: impl FnMut(u64) -> (Vec<E>, Option<u64>)) -> impl Iterator<Item = E> {
    let mut cursor = Some(0);
    std::iter::from_fn(move || {
        let (elements, next) = read_page(cursor?);
        cursor = next;
        Some(elements)
    })
    .flatten()
}

/// The elements of an answer that is paged by their values, after a value or from the start.
fn pages_by_value<E>(
    after: Option<String>,
    mut read_page: impl FnMut(Option<&str>) -> Vec<E>,
    value: impl Fn(&E) -> &String,
) -> impl Iterator<Item = E> {
    let mut rest = Some(after);
    std::iter::from_fn(move || {
        let page = read_page(rest.take()?.as_deref());
        // The host may answer with less than a page, but not with nothing.
        rest = page.last().map(|element| Some(value(element).clone()));
        Some(page)
    })
    .flatten()
}
