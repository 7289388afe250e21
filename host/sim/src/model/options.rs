//! The options of requests, from query strings and `DeleteOptions` bodies.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::User;
use crate::request::Query;
use crate::status::{FieldError, Result, Status};
use crate::typed;

/// Options of creates, updates and patches.
#[derive(Clone, Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent options of a request"
)]
pub struct WriteOptions {
    /// A dry run: nothing is stored.
    pub dry_run: bool,
    /// Refuse unknown fields (`fieldValidation=Strict`).
    pub strict: bool,
    /// Take over fields of other field managers.
    pub force: bool,
    /// The field manager.
    pub field_manager: String,
    /// The user who writes, for fields that need a permission; none for the server
    /// itself.
    pub writer: Option<User>,
    /// Skip validation. No request can ask for it: tests set up states that a cluster
    /// reaches in steps.
    pub unchecked: bool,
}

impl WriteOptions {
    /// Reads a query string; `kind` names the options in error messages.
    pub fn parse(query: &Query, kind: &str) -> Result<Self> {
        let dry_run = query.all("dryRun");
        let field_manager = query.get("fieldManager").unwrap_or_default();
        let validation = query.get("fieldValidation").unwrap_or_default();
        let mut errors = Vec::new();
        match kind {
            APPLY if field_manager.is_empty() => errors.push(FieldError::required(
                "fieldManager",
                "is required for apply patch",
            )),
            "PatchOptions" if query.get("force").is_some() => errors.push(FieldError::forbidden(
                "force",
                "may not be specified for non-apply patch",
            )),
            _ => {}
        }
        manager_errors(field_manager, &mut errors);
        errors.extend(dry_run_errors(&dry_run));
        if !["", "Ignore", "Warn", "Strict"].contains(&validation) {
            errors.push(FieldError::not_supported(
                "fieldValidation",
                &json!(validation),
                &["", "Ignore", "Strict", "Warn"],
            ));
        }
        reject(if kind == APPLY { "PatchOptions" } else { kind }, &errors)?;
        Ok(WriteOptions {
            dry_run: !dry_run.is_empty(),
            strict: validation == "Strict",
            force: query.flag("force"),
            field_manager: field_manager.to_owned(),
            writer: None,
            unchecked: false,
        })
    }
}

/// The name under which the options of a server-side apply are parsed.
pub(crate) const APPLY: &str = "apply";

fn manager_errors(manager: &str, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "fieldManager";
    const LIMIT: usize = 128;
    if manager.len() > LIMIT {
        errors.push(FieldError::too_long(FIELD, LIMIT));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
        let why = format!(
            "invalid character U+{:04X} (at position {at})",
            u32::from(c)
        );
        errors.push(FieldError::invalid(FIELD, &json!(manager), why));
    }
}

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeleteOptions {
    /// Seconds until the deletion; none: the object's own default.
    pub grace_period_seconds: Option<i64>,
    /// The preconditions.
    pub preconditions: Option<Preconditions>,
    /// The old form of `propagation_policy`.
    pub orphan_dependents: Option<bool>,
    /// `Foreground`, `Background` or `Orphan`.
    pub propagation_policy: Option<String>,
    /// `["All"]`: answer as if, and change nothing.
    pub dry_run: Option<Vec<String>>,
}

/// The preconditions of a deletion.
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
            Some(body) => DeleteOptions::decode(body)?,
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

    fn decode(mut body: Value) -> Result<Self> {
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if !["", "DeleteOptions"].contains(&kind) {
            // These are decoded by a scheme of their own.
            return Err(Status::bad_request(format!(
                "no kind {kind:?} is registered for version {:?} in scheme \"pkg/apis/meta/internalversion/scheme/register.go:27\"",
                if api_version.is_empty() {
                    "meta.k8s.io/v1"
                } else {
                    api_version
                }
            )));
        }
        if let Some(wrong) = typed::decode("v1", "DeleteOptions", &mut body).error {
            return Err(Status::bad_request(wrong.json));
        }
        serde_json::from_value(body).map_err(|error| Status::bad_request(error.to_string()))
    }

    /// Whether nothing would change.
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

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Match {
    /// Not set.
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
    /// The `resourceVersion`; empty: the latest.
    pub resource_version: String,
    /// How the version is meant.
    pub version_match: Match,
    /// Changes from now on instead of the state.
    pub watch: bool,
    /// Send bookmarks.
    pub bookmarks: bool,
    /// Start a watch with the state.
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
        let mut errors = Vec::new();
        let fits = self.version_match == Match::NotOlderThan;
        if self.send_initial_events.is_some() && !fits {
            errors.push(FieldError::forbidden(
                FIELD,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if version_match.is_empty() {
            return errors;
        }
        if self.send_initial_events.is_none() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if !fits {
            let value = json!(version_match);
            errors.push(FieldError::not_supported(FIELD, &value, &["NotOlderThan"]));
        }
        if !self.continue_token.is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        errors
    }

    fn list_errors(&self, version_match: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if !version_match.is_empty() {
            self.list_match_errors(version_match, &mut errors);
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        errors
    }

    fn list_match_errors(&self, version_match: &str, errors: &mut Vec<FieldError>) {
        const FIELD: &str = "resourceVersionMatch";
        if self.resource_version.is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !self.continue_token.is_empty() {
            errors.push(FieldError::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden when continue is provided",
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
    }
}
