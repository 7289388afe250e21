//! PodGC's logic compiled into this program, over the same snapshot.

use std::time::Instant;

use davit_core::store::{Entry, Page as StorePage, Snapshot, View};
use davit_guest::bindings::davit::controller::cache::{KeyPage, OrderedPage, Page};
use davit_guest::bindings::davit::controller::decisions::WorkItem;
use davit_guest::bindings::davit::controller::live::GetRequest;
use davit_guest::bindings::davit::controller::mapping::UnlistedResource;
use davit_guest::bindings::davit::controller::queue::PendingItem;
use davit_guest::bindings::davit::controller::types::{Failure, Object};
use davit_guest::component::{Host, Instance};
use davit_guest::{IndexKey, Level, ListRequest, Place, ResourceMapping};
use podgc::PodGc;

use crate::{World, now};

/// The µs that one pass takes.
pub(crate) fn measure(config: &[u8], world: &World, rounds: u32) -> f64 {
    let instance = Instance::<PodGc>::new();
    assert!(instance.describe(config).is_ok(), "the defaults are valid");
    let item = WorkItem {
        queue: podgc::PASSES.to_string(),
        key: podgc::PASS.into(),
        attempt: 0,
        created_at: 0,
        due_at: 0,
        failures: vec![],
        cursor: String::new(),
    };
    let begun = Instant::now();
    for _ in 0..rounds {
        let host = Native {
            world,
            snapshot: world.store.snapshot(),
        };
        let decisions = instance.reconcile(&host, now().wall.0, vec![item.clone()]);
        let plans = decisions.iter().map(|decision| decision.plans.len());
        assert_eq!(plans.sum::<usize>(), world.plans);
    }
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
}

struct Native<'a> {
    world: &'a World,
    snapshot: Snapshot,
}

impl Native<'_> {
    fn view<T>(&self, watch: &str, read: impl FnOnce(View<'_>) -> T) -> T
    where
        T: Default,
    {
        let view = self.world.views.get(watch).copied();
        view.and_then(|view| self.snapshot.view(view))
            .map(read)
            .unwrap_or_default()
    }
}

fn object(entry: &Entry<'_>) -> Object {
    let record = entry.record();
    Object {
        api_version: record.kind.api_version.to_string(),
        kind: record.kind.kind.to_string(),
        resource_version: record.resource_version.to_string(),
        changed_at: 0,
        data: record.data.to_vec(),
    }
}

fn page(page: &StorePage<Entry<'_>>) -> Page {
    Page {
        objects: page.items.iter().map(object).collect(),
        next: page.next,
    }
}

const NOTHING: Page = Page {
    objects: vec![],
    next: None,
};

impl Host for Native<'_> {
    fn len(&self, watch: &str) -> u64 {
        self.view(watch, |view| view.len() as u64)
    }

    fn get(&self, watch: &str, key: &str) -> Option<Object> {
        self.view(watch, |view| view.get(key).as_ref().map(object))
    }

    fn get_by_uid(&self, watch: &str, uid: &str) -> Option<Object> {
        self.view(watch, |view| view.get_by_uid(uid).as_ref().map(object))
    }

    fn by_index(&self, watch: &str, index: &str, value: &str, cursor: u64, limit: u32) -> Page {
        let found = self.view(watch, |view| {
            let index = view.index(index)?;
            Some(page(&index.get(value, cursor, limit as usize)))
        });
        found.unwrap_or(NOTHING)
    }

    fn in_order(
        &self,
        watch: &str,
        index: &str,
        value: &str,
        after: Option<&Place>,
        limit: u32,
    ) -> OrderedPage {
        let after = after.cloned();
        let after = after.map(|Place { order, key }| davit_core::store::Place { order, key });
        let (objects, next) = self.view(watch, |view| {
            let index = view.index(index);
            let page = index.and_then(|it| it.in_order(value, after.as_ref(), limit as usize));
            let (entries, next) = page.unwrap_or_default();
            (entries.iter().map(object).collect(), next)
        });
        OrderedPage {
            objects,
            next: next.map(|davit_core::store::Place { order, key }| Place { order, key }),
        }
    }

    fn index_count(&self, watch: &str, index: &str, value: &str) -> u32 {
        self.view(watch, |view| {
            view.index(index).map_or(0, |index| index.count(value))
        })
    }

    fn index_keys(
        &self,
        watch: &str,
        index: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Vec<IndexKey> {
        self.view(watch, |view| {
            let values = view
                .index(index)
                .map(|index| index.values(after, limit as usize));
            let key = |(value, count): (&str, u32)| IndexKey {
                value: value.to_owned(),
                count,
            };
            values.into_iter().flatten().map(key).collect()
        })
    }

    fn values_without(
        &self,
        (watch, index): (&str, &str),
        (other_watch, other_index): (&str, &str),
        after: Option<&str>,
        limit: u32,
    ) -> Vec<String> {
        self.view(watch, |view| {
            self.view(other_watch, |other| {
                let both = view.index(index).zip(other.index(other_index));
                let values =
                    both.map(|(index, other)| index.values_without(&other, after, limit as usize));
                values.into_iter().flatten().map(Into::into).collect()
            })
        })
    }

    fn keys(&self, watch: &str, cursor: u64, limit: u32) -> KeyPage {
        let page = self.view(watch, |view| {
            let page = view.keys(cursor, limit as usize);
            let keys: Vec<String> = page.items.iter().map(ToString::to_string).collect();
            (keys, page.next)
        });
        KeyPage {
            keys: page.0,
            next: page.1,
        }
    }

    fn scan(&self, watch: &str, cursor: u64, limit: u32) -> Page {
        let found = self.view(watch, |view| Some(page(&view.scan(cursor, limit as usize))));
        found.unwrap_or(NOTHING)
    }

    fn live_get(&self, _: &[GetRequest]) -> Vec<Result<Object, Failure>> {
        Vec::new()
    }

    fn live_list(&self, _: &ListRequest) -> Result<Vec<Object>, Failure> {
        Ok(Vec::new())
    }

    fn lookup(&self, _: &str, _: &str) -> Option<ResourceMapping> {
        None
    }

    fn unlisted(&self, _: &str) -> Vec<UnlistedResource> {
        Vec::new()
    }

    fn pending(&self, _: &str, _: &str) -> Option<PendingItem> {
        None
    }

    fn note(&self, _: &str) -> Option<Vec<u8>> {
        None
    }

    fn log(&self, _: Level, _: &str, _: &[(String, String)]) {}
}
