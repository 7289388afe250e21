//! The options of requests, from query strings and `DeleteOptions` bodies.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::request::Query;
use crate::status::{FieldError, Result, Status};

/// Options of creates, updates and patches.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Answer as if, and change nothing.
    pub dry_run: bool,
    /// Refuse fields that the schema does not know (`fieldValidation=Strict`).
    pub strict: bool,
    /// Take fields over from other appliers.
    pub force: bool,
    /// Who writes, for server-side apply.
    pub field_manager: String,
}

impl WriteOptions {
    /// Reads a query string; `kind` names the options in error messages.
    pub fn parse(query: &Query, kind: &str) -> Result<Self> {
        let dry_run = query.all("dryRun");
        reject(kind, &dry_run_errors(&dry_run))?;
        let validation = query.get("fieldValidation").unwrap_or_default();
        if !["", "Ignore", "Warn", "Strict"].contains(&validation) {
            let error = FieldError::not_supported(
                "fieldValidation",
                &json!(validation),
                &["", "Ignore", "Strict", "Warn"],
            );
            reject(kind, &[error])?;
        }
        Ok(WriteOptions {
            dry_run: !dry_run.is_empty(),
            strict: validation == "Strict",
            force: query.flag("force"),
            field_manager: query.get("fieldManager").unwrap_or_default().to_owned(),
        })
    }
}

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeleteOptions {
    /// Seconds until the object may go; none: the object's own default.
    pub grace_period_seconds: Option<i64>,
    /// What must hold of the object.
    pub preconditions: Option<Preconditions>,
    /// The old form of `propagation_policy`.
    pub orphan_dependents: Option<bool>,
    /// `Foreground`, `Background` or `Orphan`.
    pub propagation_policy: Option<String>,
    /// `["All"]`: answer as if, and change nothing.
    pub dry_run: Option<Vec<String>>,
}

/// What must hold of an object for its deletion.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preconditions {
    /// Its uid.
    pub uid: Option<String>,
    /// Its version.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads the body if there is one, else the query string.
    pub fn parse(query: &Query, body: Option<Value>) -> Result<Self> {
        let options = match body {
            Some(body) => {
                let kind = body.get("kind").and_then(Value::as_str).unwrap_or_default();
                if !["", "DeleteOptions"].contains(&kind) {
                    return Err(Status::bad_request(
                        "decoded object cannot be converted to DeleteOptions",
                    ));
                }
                serde_json::from_value(body).map_err(|error| {
                    Status::bad_request(format!("unable to decode DeleteOptions: {error}"))
                })?
            }
            None => DeleteOptions {
                grace_period_seconds: query.number("gracePeriodSeconds")?,
                orphan_dependents: query
                    .get("orphanDependents")
                    .map(|_| query.flag("orphanDependents")),
                propagation_policy: query.get("propagationPolicy").map(str::to_owned),
                dry_run: Some(query.all("dryRun")),
                preconditions: None,
            },
        };
        options.validate()?;
        Ok(options)
    }

    /// Whether nothing is to be changed.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.dry_run.as_ref().is_some_and(|all| !all.is_empty())
    }

    fn validate(&self) -> Result<()> {
        let mut errors = Vec::new();
        if let Some(policy) = &self.propagation_policy {
            if self.orphan_dependents.is_some() {
                errors.push(FieldError::invalid(
                    "propagationPolicy",
                    &json!(policy),
                    "orphanDependents and deletionPropagation cannot be both set",
                ));
            }
            if !["Foreground", "Background", "Orphan"].contains(&policy.as_str()) {
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    &json!(policy),
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
            }
        }
        if let Some(dry_run) = &self.dry_run {
            errors.extend(dry_run_errors(dry_run));
        }
        reject("DeleteOptions", &errors)
    }
}

fn dry_run_errors(dry_run: &[String]) -> Vec<FieldError> {
    if dry_run.iter().all(|what| what == "All") {
        return Vec::new();
    }
    vec![FieldError::not_supported(
        "dryRun",
        &json!(dry_run),
        &["All"],
    )]
}

fn reject(kind: &str, errors: &[FieldError]) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(kind, "meta.k8s.io", "", errors))
}

/// How a list's or a watch's `resourceVersion` is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Match {
    /// Not said.
    #[default]
    Unset,
    /// That version, no other.
    Exact,
    /// That version or a later one.
    NotOlderThan,
}

/// Options of lists and watches.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// The label selector's text.
    pub label_selector: String,
    /// The field selector's text.
    pub field_selector: String,
    /// The page size; 0: everything.
    pub limit: usize,
    /// Where an earlier page ended.
    pub continue_token: String,
    /// The version asked for; empty: the latest.
    pub resource_version: String,
    /// How the version is meant.
    pub version_match: Match,
    /// Changes from now on instead of the state.
    pub watch: bool,
    /// Send bookmarks.
    pub bookmarks: bool,
    /// Begin a watch with the state.
    pub send_initial_events: Option<bool>,
    /// Seconds after which a watch ends.
    pub timeout_seconds: Option<u64>,
}

impl ListOptions {
    /// Reads a query string.
    pub fn parse(query: &Query) -> Result<Self> {
        let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let version_match = query.get("resourceVersionMatch").unwrap_or_default();
        let options = ListOptions {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            limit: query
                .number("limit")?
                .and_then(|limit| usize::try_from(limit).ok())
                .unwrap_or(0),
            continue_token: text("continue"),
            resource_version: text("resourceVersion"),
            version_match: match version_match {
                "Exact" => Match::Exact,
                "NotOlderThan" => Match::NotOlderThan,
                _ => Match::Unset,
            },
            watch: query.flag("watch"),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query
                .get("sendInitialEvents")
                .map(|_| query.flag("sendInitialEvents")),
            timeout_seconds: query
                .number("timeoutSeconds")?
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0),
        };
        let errors = if options.watch {
            options.watch_errors(version_match)
        } else {
            options.list_errors(version_match)
        };
        reject("ListOptions", &errors)?;
        Ok(options)
    }

    fn watch_errors(&self, version_match: &str) -> Vec<FieldError> {
        const FIELD: &str = "resourceVersionMatch";
        if self.send_initial_events.is_some() && self.version_match != Match::NotOlderThan {
            return vec![FieldError::forbidden(
                FIELD,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )];
        }
        if self.send_initial_events.is_none() && !version_match.is_empty() {
            return vec![FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )];
        }
        Vec::new()
    }

    fn list_errors(&self, version_match: &str) -> Vec<FieldError> {
        const FIELD: &str = "resourceVersionMatch";
        let mut errors = Vec::new();
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        if version_match.is_empty() {
            return errors;
        }
        if !self.continue_token.is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if self.resource_version.is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if self.version_match == Match::Unset {
            errors.push(FieldError::not_supported(
                FIELD,
                &json!(version_match),
                &["Exact", "NotOlderThan", ""],
            ));
        }
        if self.version_match == Match::Exact && self.resource_version == "0" {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
        errors
    }
}
