//! Requests that nothing is stored for: tokens, and questions about users and
//! permissions.

use serde_json::{Map, Value, json};

use super::{Model, decode};
use crate::access::token::{Account, Bound, Claims, ISSUER};
use crate::access::{Attributes, Rule, User};
use crate::body::Body;
use crate::object::Object;
use crate::status::{FieldError, Result, Status};
use crate::target::Target;
use crate::time::Time;
use crate::{typed, validation};

/// The lifetime of a token in seconds, if the request sets none.
const TOKEN_LIFE: i64 = 3600;

impl Model {
    /// Answers a review of the resource that `target` names.
    pub(crate) fn review(
        &self,
        now: Time,
        target: &Target,
        body: Body,
        strict: bool,
        user: &User,
    ) -> Result<Value> {
        let resource = &target.resource;
        let mut review = decode::object(target, body, strict)?;
        let status = match resource.kind.as_str() {
            "TokenReview" => self.review_token(now, &review)?,
            "SelfSubjectReview" => {
                review.metadata.creation_timestamp = Some(now);
                json!({"userInfo": describe(user)})
            }
            "SelfSubjectRulesReview" => self.review_rules(&review, user)?,
            kind => {
                validation::access_review(kind, &target.namespace, &review).map_err(|errors| {
                    // The server names neither kind nor name.
                    Status::invalid("", &resource.group, "", &errors)
                })?;
                let subject = match kind {
                    "SelfSubjectAccessReview" => user.clone(),
                    _ => subject(&review),
                };
                self.review_access(&review, &subject)
            }
        };
        review.body.insert("status".to_owned(), status);
        Ok(review.to_value(&resource.api_version(), &resource.kind))
    }

    fn review_token(&self, now: Time, review: &Object) -> Result<Value> {
        let token = review.text(&["spec", "token"]);
        if token.is_empty() {
            return Err(Status::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        let wanted = texts(review.at(&["spec", "audiences"]));
        let failed = |why: String| json!({"user": {}, "error": why});
        let (user, own) = match self.authenticate(now, token) {
            Ok(found) => found,
            Err(why) => return Ok(failed(why)),
        };
        let meant = if wanted.is_empty() {
            vec![ISSUER.to_owned()]
        } else {
            wanted
        };
        let common: Vec<&String> = own.iter().filter(|one| meant.contains(one)).collect();
        if common.is_empty() {
            return Ok(failed(format!(
                "[invalid bearer token, token audiences {} is invalid for the target audiences {}]",
                crate::access::quoted(&own),
                crate::access::quoted(&meant)
            )));
        }
        Ok(json!({"authenticated": true, "user": describe(&user), "audiences": common}))
    }

    fn review_access(&self, review: &Object, subject: &User) -> Value {
        let decision = self.decide(subject, &attributes(review));
        let mut status = json!({"allowed": decision.allowed});
        if let (false, Value::Object(status)) = (decision.reason.is_empty(), &mut status) {
            status.insert("reason".to_owned(), decision.reason.into());
        }
        status
    }

    fn review_rules(&self, review: &Object, user: &User) -> Result<Value> {
        let namespace = review.text(&["spec", "namespace"]);
        if namespace.is_empty() {
            return Err(Status::bad_request("no namespace on request"));
        }
        let (mut rules, broken) = self.policy()?.rules_for(user, namespace);
        if user.is_privileged() {
            rules.extend(Rule::everything());
        }
        let of_paths = |rule: &&Rule| !rule.non_resource_urls.is_empty();
        let paths = rules.iter().filter(of_paths);
        let resources = rules.iter().filter(|rule| !rule.resources.is_empty());
        let mut status = json!({
            "resourceRules": resources.map(resource_rule).collect::<Vec<_>>(),
            "nonResourceRules": paths
                .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}))
                .collect::<Vec<_>>(),
            "incomplete": !broken.is_empty(),
        });
        if let (false, Value::Object(status)) = (broken.is_empty(), &mut status) {
            status.insert("evaluationError".to_owned(), broken.join(", ").into());
        }
        Ok(status)
    }

    /// Makes a token for the `ServiceAccount` that `target` names.
    pub(crate) fn issue_token(&mut self, now: Time, target: &Target, body: Body) -> Result<Value> {
        const API_VERSION: &str = "authentication.k8s.io/v1";
        const KIND: &str = "TokenRequest";
        let mut request = body.parse(KIND)?;
        if let Some(wrong) = typed::decode(API_VERSION, KIND, &mut request).error {
            return Err(Status::bad_request(format!(
                "{KIND} in version \"v1\" cannot be handled as a {KIND}: {}",
                wrong.json
            )));
        }
        let account = self.stored(target)?.metadata()?;
        let spec = request.get("spec").cloned().unwrap_or_default();
        let life = spec
            .get("expirationSeconds")
            .and_then(Value::as_i64)
            .unwrap_or(TOKEN_LIFE);
        check_life(target, life)?;
        if spec.get("boundObjectRef").is_some_and(Value::is_object) {
            return Err(Status::not_simulated("a token that is bound to an object"));
        }
        let mut audiences = texts(spec.get("audiences"));
        if audiences.is_empty() {
            audiences = vec![ISSUER.to_owned()];
        }
        let user = User::service_account(&account.namespace, &account.name, &account.uid);
        let expiry = now.after(life);
        let claims = Claims {
            aud: audiences.clone(),
            exp: expiry.unix(),
            iat: now.unix(),
            iss: ISSUER.to_owned(),
            jti: self.rng.uuid(),
            kubernetes: Bound {
                namespace: account.namespace.clone(),
                serviceaccount: Account {
                    name: account.name.clone(),
                    uid: account.uid.clone(),
                },
            },
            nbf: now.unix(),
            sub: user.name,
        };
        Ok(json!({
            "kind": KIND, "apiVersion": API_VERSION,
            "metadata": {
                "name": account.name, "namespace": account.namespace, "uid": account.uid,
                "creationTimestamp": now,
            },
            "spec": {"audiences": audiences, "expirationSeconds": life, "boundObjectRef": null},
            "status": {"token": self.access.key.sign(&claims), "expirationTimestamp": expiry},
        }))
    }
}

fn check_life(target: &Target, seconds: i64) -> Result<()> {
    let why = match seconds {
        ..600 => "may not specify a duration less than 10 minutes",
        4_294_967_297.. => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(()),
    };
    let error = FieldError::invalid("spec.expirationSeconds", &json!(seconds), why);
    let group = "authentication.k8s.io";
    Err(Status::invalid(
        "TokenRequest",
        group,
        &target.name,
        &[error],
    ))
}

fn resource_rule(rule: &Rule) -> Value {
    let lists = [
        ("verbs", &rule.verbs),
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
    ];
    lists
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| (name.to_owned(), json!(list)))
        .collect::<Map<_, _>>()
        .into()
}

/// A user as reviews show them.
fn describe(user: &User) -> Value {
    let mut shown = json!({"username": user.name, "groups": user.groups});
    if let Value::Object(fields) = &mut shown {
        if !user.uid.is_empty() {
            fields.insert("uid".to_owned(), user.uid.clone().into());
        }
        if !user.extra.is_empty() {
            fields.insert("extra".to_owned(), json!(user.extra));
        }
    }
    shown
}

/// The user that a review is about.
fn subject(review: &Object) -> User {
    User {
        name: review.text(&["spec", "user"]).to_owned(),
        uid: review.text(&["spec", "uid"]).to_owned(),
        groups: texts(review.at(&["spec", "groups"])),
        ..User::default()
    }
}

fn attributes(review: &Object) -> Attributes {
    if let Some(path) = review.at(&["spec", "nonResourceAttributes"]) {
        let text = |name: &str| path.get(name).and_then(Value::as_str).unwrap_or_default();
        return Attributes {
            verb: text("verb").to_owned(),
            path: Some(text("path").to_owned()),
            ..Attributes::default()
        };
    }
    let text = |name: &str| {
        review
            .text(&["spec", "resourceAttributes", name])
            .to_owned()
    };
    Attributes {
        verb: text("verb"),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        path: None,
    }
}

fn texts(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}
