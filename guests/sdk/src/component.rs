//! How a [`Controller`] becomes a component.

use std::cell::OnceCell;

use crate::bindings::davit::controller::{decisions, types};
use crate::context::Context;
#[doc(hidden)]
pub use crate::context::Host;
use crate::{
    ConfigError, Controller, Decision, Instant, LiveFields, Manifest, TriggerCondition, WorkItem,
    WrittenConfig, config, pages,
};

#[doc(hidden)]
pub use crate::bindings::{
    export_component, exports::davit::controller::conditions::Guest as ExportedConditions,
    exports::davit::controller::decide::Guest as ExportedGuest,
    exports::davit::controller::reads::Guest as ExportedReads,
};

/// Exports a [`Controller`] as the crate's component:
/// `davit_guest::export!(PodGc);`
///
/// On targets other than wasm32 the macro expands to nothing, so that the same
/// crate can be tested natively.
#[macro_export]
macro_rules! export {
    ($controller:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            ::std::thread_local! {
                static INSTANCE: $crate::component::Instance<$controller> =
                    const { $crate::component::Instance::new() };
            }

            struct Component;

            impl $crate::component::ExportedGuest for Component {
                fn describe(
                    config: ::std::vec::Vec<u8>,
                ) -> ::std::result::Result<$crate::Manifest, $crate::ConfigError> {
                    INSTANCE.with(|instance| instance.describe(&config))
                }

                fn reconcile(
                    now: $crate::component::WitInstant,
                    items: ::std::vec::Vec<$crate::component::WitItem>,
                ) -> ::std::vec::Vec<$crate::Decision> {
                    INSTANCE.with(|instance| {
                        instance.reconcile(&$crate::component::Imports, now, items)
                    })
                }
            }

            impl $crate::component::ExportedConditions for Component {
                fn trigger_conditions() -> ::std::vec::Vec<$crate::TriggerCondition> {
                    INSTANCE.with(|instance| instance.trigger_conditions())
                }
            }

            impl $crate::component::ExportedReads for Component {
                fn live_reads() -> ::std::vec::Vec<$crate::LiveFields> {
                    INSTANCE.with(|instance| instance.live_reads())
                }
            }

    $crate::component::export_component!(Component with_types_in $crate::bindings);
        };
    };
}

#[doc(hidden)]
pub use decisions::WorkItem as WitItem;
#[doc(hidden)]
pub use types::Instant as WitInstant;

/// The controller of one instance of a component, once `describe` was called.
#[doc(hidden)]
pub struct Instance<C>(OnceCell<C>);

impl<C: Controller> Instance<C> {
    /// An instance before the call of `describe`.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceCell::new())
    }

    /// Builds the controller from the operator's configuration and keeps it.
    /// The host calls this once, before any other call.
    pub fn describe(&self, config: &[u8]) -> Result<Manifest, ConfigError> {
        let controller = configured(config)?;
        Ok(self.0.get_or_init(|| controller).manifest())
    }

    /// The conditions of triggers; none before `describe`.
    pub fn trigger_conditions(&self) -> Vec<TriggerCondition> {
        let controller = self.0.get();
        controller.map_or_else(Vec::new, Controller::trigger_conditions)
    }

    /// The fields of live reads; none before `describe`.
    pub fn live_reads(&self) -> Vec<LiveFields> {
        let controller = self.0.get();
        controller.map_or_else(Vec::new, Controller::live_reads)
    }

    /// Decides about the items of one call. A decision too long for one answer
    /// is divided into pages.
    pub fn reconcile(
        &self,
        host: &dyn Host,
        now: WitInstant,
        items: Vec<WitItem>,
    ) -> Vec<Decision> {
        let Some(controller) = self.0.get() else {
            // The host broke the contract. No answer would be right: end the
            // call with a trap.
            std::process::abort();
        };
        let items: Vec<WorkItem> = items.into_iter().map(Into::into).collect();
        let cx = Context::new(Instant::from_millis(now), host);
        let answers = controller.reconcile_batch(&cx, &items).into_iter();
        let decisions = answers.map(|answer| answer.unwrap_or_else(Into::into));
        pages::fitting(&items, decisions.collect())
    }

    /// Reads from the controller, with a context of this time; none before `describe`.
    pub fn observe<R>(
        &self,
        host: &dyn Host,
        now: WitInstant,
        read: impl FnOnce(&C, &Context<'_>) -> R,
    ) -> Option<R> {
        let controller = self.0.get()?;
        Some(observe(host, now, |cx| read(controller, cx)))
    }
}

/// A controller with a configuration (MessagePack), outside of a component.
#[doc(hidden)]
pub fn configured<C: Controller>(config: &[u8]) -> Result<C, ConfigError> {
    C::new(read_config::<C>(config)?)
}

/// Reads a configuration (MessagePack) of a controller, outside of a component.
#[doc(hidden)]
pub fn read_config<C: Controller>(config: &[u8]) -> Result<C::Config, ConfigError> {
    let read = config::read(config)?;
    C::check_written(&WrittenConfig(config))?;
    Ok(read)
}

/// Reads with a context of this time (milliseconds since the epoch), outside of a component.
#[doc(hidden)]
pub fn observe<R>(host: &dyn Host, now: WitInstant, read: impl FnOnce(&Context<'_>) -> R) -> R {
    read(&Context::new(Instant::from_millis(now), host))
}

impl<C: Controller> Default for Instance<C> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(target_arch = "wasm32")]
pub use imports::Imports;

#[cfg(target_arch = "wasm32")]
mod imports {
    use crate::bindings::davit::controller::{cache, live, log, mapping, notes, queue, types};
    use crate::context::Host;

    /// The host, through the component's imports.
    #[doc(hidden)]
    pub struct Imports;

    impl Host for Imports {
        fn len(&self, watch: &str) -> u64 {
            cache::len(watch)
        }

        fn get(&self, watch: &str, key: &str) -> Option<types::Object> {
            cache::get(watch, key)
        }

        fn get_by_uid(&self, watch: &str, uid: &str) -> Option<types::Object> {
            cache::get_by_uid(watch, uid)
        }

        fn by_index(
            &self,
            watch: &str,
            index: &str,
            value: &str,
            cursor: u64,
            limit: u32,
        ) -> cache::Page {
            cache::by_index(watch, index, value, cursor, limit)
        }

        fn in_order(
            &self,
            watch: &str,
            index: &str,
            value: &str,
            after: Option<&cache::Place>,
            limit: u32,
        ) -> cache::OrderedPage {
            cache::in_order(watch, index, value, after, limit)
        }

        fn index_count(&self, watch: &str, index: &str, value: &str) -> u32 {
            cache::index_count(watch, index, value)
        }

        fn index_keys(
            &self,
            watch: &str,
            index: &str,
            after: Option<&str>,
            limit: u32,
        ) -> Vec<cache::IndexKey> {
            cache::index_keys(watch, index, after, limit)
        }

        fn values_without(
            &self,
            (watch, index): (&str, &str),
            (other_watch, other_index): (&str, &str),
            after: Option<&str>,
            limit: u32,
        ) -> Vec<String> {
            cache::values_without(watch, index, other_watch, other_index, after, limit)
        }

        fn keys(&self, watch: &str, cursor: u64, limit: u32) -> cache::KeyPage {
            cache::keys(watch, cursor, limit)
        }

        fn scan(&self, watch: &str, cursor: u64, limit: u32) -> cache::Page {
            cache::scan(watch, cursor, limit)
        }

        fn live_get(
            &self,
            requests: &[live::GetRequest],
        ) -> Vec<Result<types::Object, types::Failure>> {
            live::get(requests)
        }

        fn live_list(
            &self,
            request: &live::ListRequest,
        ) -> Result<Vec<types::Object>, types::Failure> {
            live::list(request)
        }

        fn lookup(&self, api_version: &str, kind: &str) -> Option<mapping::ResourceMapping> {
            mapping::lookup(api_version, kind)
        }

        fn unlisted(&self, watch: &str) -> Vec<mapping::UnlistedResource> {
            mapping::unlisted(watch)
        }

        fn pending(&self, queue: &str, key: &str) -> Option<queue::PendingItem> {
            queue::pending(queue, key)
        }

        fn note(&self, key: &str) -> Option<Vec<u8>> {
            notes::get(key)
        }

        fn log(&self, level: log::Level, message: &str, fields: &[(String, String)]) {
            log::emit(level, message, fields);
        }
    }
}
