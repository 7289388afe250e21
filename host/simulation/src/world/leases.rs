//! Leader election: requests for leases, and until when the host leads.

use davit_core::election::{LeaseRequest, LeaseRequestId, LeaseTerm, LeaseTiming};
use davit_core::request::call::Sender;
use davit_core::request::{Method, RequestError, lease};
use davit_core::time::Instant;
use davit_core::traffic::Urgency;
use davit_sim::direct;
use serde_json::Value;

use super::in_flight::{Call, Caller};
use super::{Link, Notice};
use crate::namespace::NAMESPACE;

impl Link<'_> {
    /// Sends a request for leases. The answer is a [`Notice::Lease`].
    pub fn lease(&mut self, request: LeaseRequest) {
        let (id, sent) = (request.id(), lease::request(NAMESPACE, &request));
        self.client.lease_requests.insert(id, request);
        self.ask(Caller::Lease(id), &Sender::default(), Urgency::Read, sent);
    }

    /// Until when requests of a controller may be sent, on the host's clock.
    pub fn set_term(&mut self, controller: String, until: Option<Instant>) {
        match until {
            Some(until) => self.client.terms.insert(controller, until),
            None => self.client.terms.remove(&controller),
        };
    }

    /// The host takes part in leader election as this run of a replica, or does not.
    pub(crate) fn elect(&mut self, identity: Option<String>) {
        self.client.identity = identity;
    }

    /// When work for a controller that starts now has to end, on the world's clock.
    pub(super) fn work_ends(&self, controller: &str) -> Instant {
        if self.client.identity.is_none() {
            return Instant::FAR_FUTURE;
        }
        self.client.clocks.world(self.term(controller).ends())
    }

    fn term(&self, controller: &str) -> LeaseTerm {
        LeaseTerm {
            until: self.client.terms.get(controller).copied(),
            grace: LeaseTiming::default().grace(),
        }
    }

    /// A write of a plan or of a record is sent by the holder of the lease, as the server knows
    /// it.
    pub(super) fn check_lease(&mut self, call: &Call) {
        let Some(identity) = &self.client.identity else {
            return;
        };
        let is_write = call.request.method != Method::Get;
        let needs_lease = matches!(call.caller, Caller::Execution(_) | Caller::Record(_));
        if !needs_lease || !is_write {
            return;
        }
        let controller = &call.sender.controller;
        let model = &self.shared.server.model;
        let name = format!("controller-{controller}");
        let lease = direct::get(model, "coordination.k8s.io/v1", "Lease", NAMESPACE, &name);
        let lease = lease.unwrap_or_default();
        let holder = lease.pointer("/spec/holderIdentity");
        let holder = holder.and_then(Value::as_str);
        if holder != Some(identity) {
            let what = format!(
                "{identity} sends {} for {controller}, whose lease {holder:?} holds",
                call.request
            );
            self.shared.violated(what);
        }
    }

    /// Whether requests of a controller may be sent now.
    pub(super) fn is_in_term(&self, controller: &str) -> bool {
        self.client.identity.is_none() || self.term(controller).holds(self.now().instant)
    }

    pub(super) fn lease_answered(
        &mut self,
        id: LeaseRequestId,
        result: &Result<Vec<u8>, RequestError>,
    ) {
        let Some(request) = self.client.lease_requests.remove(&id) else {
            return;
        };
        let answer = result.as_ref().map(Vec::as_slice);
        let answer = lease::answer(NAMESPACE, &request, answer);
        self.client.notices.push_back(Notice::Lease { id, answer });
    }
}
