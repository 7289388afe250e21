//! The cache, as one snapshot.

use davit_core::store::{Entry, IndexView, Page, Place, View, ViewId};
use wasmtime::Result;

use super::readable;
use crate::convert;
use crate::error::Mistake;
use crate::state::State;
use crate::wit::{cache, types};

impl cache::Host for State {
    fn len(&mut self, watch: String) -> Result<u64> {
        Ok(self.watch(&watch)?.len() as u64)
    }

    fn get(&mut self, watch: String, key: String) -> Result<Option<types::Object>> {
        let entry = self.watch(&watch)?.get(&key);
        entry.map(|entry| self.object(entry)).transpose()
    }

    fn get_by_uid(&mut self, watch: String, uid: String) -> Result<Option<types::Object>> {
        let entry = self.watch(&watch)?.get_by_uid(&uid);
        entry.map(|entry| self.object(entry)).transpose()
    }

    fn by_index(
        &mut self,
        watch: String,
        index: String,
        value: String,
        cursor: u64,
        limit: u32,
    ) -> Result<cache::Page> {
        let index = self.index(&watch, &index)?;
        self.page(limit, |limit| index.get(&value, cursor, limit))
    }

    fn in_order(
        &mut self,
        watch: String,
        name: String,
        value: String,
        after: Option<cache::Place>,
        limit: u32,
    ) -> Result<cache::OrderedPage> {
        let index = self.index(&watch, &name)?;
        let after = after.map(|cache::Place { order, key }| Place { order, key });
        let read = |limit: usize| index.in_order(&value, after.as_ref(), limit.max(1));
        let Some((entries, mut next)) = read(self.limit(limit)) else {
            return Mistake::trap(format!(
                "it asked for the order of the index \"{name}\" of the watch \"{watch}\", which \
                 has none in its manifest"
            ));
        };
        let (objects, is_whole) = self.objects(entries)?;
        if !is_whole {
            next = read(objects.len()).and_then(|(_, next)| next);
        }
        Ok(cache::OrderedPage {
            objects,
            next: next.map(|Place { order, key }| cache::Place { order, key }),
        })
    }

    fn index_count(&mut self, watch: String, index: String, value: String) -> Result<u32> {
        Ok(self.index(&watch, &index)?.count(&value))
    }

    fn index_keys(
        &mut self,
        watch: String,
        index: String,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<cache::IndexKey>> {
        let index = self.index(&watch, &index)?;
        let values = index.values(after.as_deref(), self.limit(limit));
        Ok(values
            .into_iter()
            .map(|(value, count)| cache::IndexKey {
                value: value.to_owned(),
                count,
            })
            .collect())
    }

    fn values_without(
        &mut self,
        watch: String,
        index: String,
        other_watch: String,
        other_index: String,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<String>> {
        let index = self.index(&watch, &index)?;
        let other = self.index(&other_watch, &other_index)?;
        let values = index.values_without(&other, after.as_deref(), self.limit(limit));
        Ok(values.into_iter().map(Into::into).collect())
    }

    fn keys(&mut self, watch: String, cursor: u64, limit: u32) -> Result<cache::KeyPage> {
        let page = self.watch(&watch)?.keys(cursor, self.limit(limit));
        Ok(cache::KeyPage {
            keys: page.items.into_iter().map(Into::into).collect(),
            next: page.next,
        })
    }

    fn scan(&mut self, watch: String, cursor: u64, limit: u32) -> Result<cache::Page> {
        let watch = self.watch(&watch)?;
        self.page(limit, |limit| watch.scan(cursor, limit))
    }
}

impl State {
    /// The view of a watch that the manifest declares.
    pub(super) fn view_id(&self, name: &str) -> Result<ViewId> {
        match self.view()?.call.views.get(name) {
            Some(id) => Ok(*id),
            None => Mistake::trap(format!(
                "it asked for the watch \"{name}\", which its manifest does not declare"
            )),
        }
    }

    fn watch(&self, name: &str) -> Result<View<'_>> {
        let id = self.view_id(name)?;
        match self.view()?.call.snapshot.view(id) {
            Some(view) => Ok(view),
            None => Mistake::trap(format!(
                "the host's snapshot is older than the watch \"{name}\""
            )),
        }
    }

    fn index(&self, watch: &str, name: &str) -> Result<IndexView<'_>> {
        match self.watch(watch)?.index(name) {
            Some(index) => Ok(index),
            None => Mistake::trap(format!(
                "it asked for the index \"{name}\" of the watch \"{watch}\", which its manifest \
                 does not declare"
            )),
        }
    }

    /// The length of a page: what the guest asks for, within its limits.
    fn limit(&self, wanted: u32) -> usize {
        wanted.min(self.limits.page) as usize
    }

    fn page<'a>(
        &self,
        wanted: u32,
        read: impl Fn(usize) -> Page<Entry<'a>>,
    ) -> Result<cache::Page> {
        let page = read(self.limit(wanted));
        let (objects, is_whole) = self.objects(page.items)?;
        let next = if is_whole {
            page.next
        } else {
            read(objects.len()).next
        };
        Ok(cache::Page { objects, next })
    }

    /// The first of these objects that fit into a page, and whether these are all. The cache has
    /// them compressed: a page of large ones could take all memory of the host.
    fn objects(&self, entries: Vec<Entry<'_>>) -> Result<(Vec<types::Object>, bool)> {
        let mut left = self.limits.page_bytes;
        let mut objects = Vec::with_capacity(entries.len());
        for entry in entries {
            if left == 0 {
                return Ok((objects, false));
            }
            let object = self.object(entry)?;
            left = left.saturating_sub(object.data.len());
            objects.push(object);
        }
        Ok((objects, true))
    }

    fn object(&self, entry: Entry<'_>) -> Result<types::Object> {
        readable(convert::entry(entry, self.now, self.encoding))
    }
}
