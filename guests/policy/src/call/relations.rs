//! What is related to an object, from the cache.

use std::rc::Rc;

use davit_guest::dynamic::Value;
use davit_guest::{IndexName, Object};

use super::Call;
use crate::judge::{Evaluation, Outcome};
use crate::related::{Link, Related, Unrelated, Values};
use crate::rule::Rule;
use crate::sources::{PRESENT, RelatedWatch};

impl Call<'_> {
    pub(super) fn load<'r>(
        &self,
        rule: &'r Rule,
        object: &Object<Value>,
        loaded: &mut Vec<(&'r str, Option<Rc<Value>>)>,
    ) -> Result<(), Unrelated> {
        for related in &rule.related {
            loaded.push((&related.name, self.read_related(related, object)?));
        }
        Ok(())
    }

    /// What cannot be known is asked for again later: nothing else may announce that it is known.
    pub(super) fn unrelated(&self, unrelated: Unrelated) -> Evaluation {
        match unrelated {
            Unrelated::OtherKind => Evaluation {
                outcome: Outcome::OtherOwner,
                next: None,
            },
            Unrelated::Unknown(message) => Evaluation {
                outcome: Outcome::Unknown(message),
                next: Some(self.again()),
            },
        }
    }

    pub(super) fn is_in_namespace(
        &self,
        rule: &Rule,
        object: &Object<Value>,
    ) -> Result<bool, Unrelated> {
        let namespace = &object.reference.namespace;
        let matches = &rule.matches;
        if !matches.namespaces.is_empty() && !matches.namespaces.contains(namespace) {
            return Ok(false);
        }
        let Some(selector) = &matches.namespace_selector else {
            return Ok(true);
        };
        let found = self.read_related(&selector.namespace, object)?;
        Ok(selector.selects(found.as_deref()))
    }

    /// What is related to an object, from the cache. What the cache may lack is an error.
    fn read_related(
        &self,
        related: &Related,
        object: &Object<Value>,
    ) -> Result<Option<Rc<Value>>, Unrelated> {
        let Some(watch) = self.policy.sources.watch_of(related) else {
            return Ok(None);
        };
        let Some(value) = related.value_of(self.cx, &object.view)? else {
            return Ok(related.is_list().then(|| Rc::new(Value::List(Vec::new()))));
        };
        let namespace = match related.link {
            Link::Field { .. } => object.reference.namespace.as_str(),
            Link::Name(_) | Link::Owner => "",
        };
        let key = (watch.queue, format!("{namespace}|{value}"));
        if let Some(known) = self.related.borrow().get(&key) {
            return Ok(known.clone());
        }
        let found = self.find(watch, namespace, &value)?;
        self.related.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    fn find(
        &self,
        watch: &RelatedWatch,
        namespace: &str,
        value: &str,
    ) -> Result<Option<Rc<Value>>, Unrelated> {
        let cache = self.cx.watch(watch.name);
        let found = match &watch.related.link {
            Link::Name(_) => cache.get(value).map(|it| it.view),
            Link::Owner => cache.get_by_uid(value).map(|it| it.view),
            Link::Field { by, .. } => {
                let objects = cache.by_index(IndexName::named(by), value);
                let objects = objects.filter(|it| is_beside(namespace, it));
                Some(Value::List(objects.map(|it| it.view).collect()))
            }
        };
        if let Some(unlisted) = cache.unlisted().first() {
            let plural = &watch.related.resource.plural;
            let reason = &unlisted.reason;
            return Err(Unrelated::Unknown(format!(
                "{plural} are not known: {reason}"
            )));
        }
        if let Some(mistake) = self.mistaken(watch) {
            return Err(Unrelated::Unknown(mistake));
        }
        Ok(found.map(Rc::new))
    }

    /// Why objects of a custom resource cannot be found by their field: it is a map or a list.
    /// The first of those that have it says so for all.
    fn mistaken(&self, watch: &RelatedWatch) -> Option<String> {
        let Link::Field { by, .. } = &watch.related.link else {
            return None;
        };
        let presence = watch.presence()?;
        let cache = self.cx.watch(watch.name);
        let (first, _) = cache.index_page(presence, PRESENT, 0, 1);
        let values = first.first().map(|it| Values::at(&it.view, by))?;
        values.mistake(by, &watch.related.resource.plural)
    }
}

/// Whether an object is in a namespace, or one of both is in none.
pub(super) fn is_beside(namespace: &str, object: &Object<Value>) -> bool {
    let other = object.reference.namespace.as_str();
    namespace.is_empty() || other.is_empty() || other == namespace
}
