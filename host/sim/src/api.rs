//! The API: from a request to an answer, without any transport.

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::accept::{self, DiscoveryForm};
use crate::access::User;
use crate::body::Body;
use crate::discovery;
use crate::encode::{Encoder, Form};
use crate::model::{
    APPLY, DeleteAnswer, DeleteOptions, ListOptions, Model, Page, WatchStart, WriteOptions,
};
use crate::openapi;
use crate::patch::PatchType;
use crate::request::Request;
use crate::route::Route;
use crate::status::{self, Result, Status};
use crate::stored::StoredObject;
use crate::table::Include;
use crate::target::Target;
use crate::time::Time;

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// JSON.
    Json(u16, Bytes),
    /// A document with its media type.
    Typed(&'static str, Bytes),
    /// Plain text.
    Text(u16, &'static str),
    /// A list, to be encoded piece by piece.
    List(Page, Encoder),
    /// A watch, for its driver.
    Watch(Box<WatchStart>),
    /// A failure.
    Failed(Box<Status>),
    /// Authentication or authorization failed.
    Denied(Box<Status>),
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Serves one request.
pub fn handle(model: &mut Model, now: Time, request: &Request) -> Answer {
    let user = match model.admit(now, request, &request.attributes()) {
        Ok(user) => user,
        Err(status) => return Answer::Denied(status),
    };
    let route = Route::of(model, &request.path);
    let sent = AuthenticatedRequest { request, user };
    serve(model, now, &sent, route).unwrap_or_else(Answer::Failed)
}

/// A request and its user.
struct AuthenticatedRequest<'a> {
    request: &'a Request,
    user: User,
}

impl std::ops::Deref for AuthenticatedRequest<'_> {
    type Target = Request;

    fn deref(&self) -> &Request {
        self.request
    }
}

fn serve(
    model: &mut Model,
    now: Time,
    request: &AuthenticatedRequest<'_>,
    route: Route,
) -> Result<Answer> {
    const NOWHERE: Answer = Answer::Text(404, "404 page not found\n");
    let aggregated = accept::discovery(&request.accept) == DiscoveryForm::Aggregated;
    Ok(match route {
        Route::Health => Answer::Text(200, "ok"),
        Route::Version => json(200, &discovery::version()),
        Route::CoreVersions | Route::Groups if aggregated => {
            let core = matches!(route, Route::CoreVersions);
            Answer::Typed(AGGREGATED, discovery::aggregated(model, core))
        }
        Route::CoreVersions => json(200, &discovery::core_versions(model)),
        Route::Groups => json(200, &discovery::groups(model)),
        Route::Group(name) => {
            discovery::group(model, &name).map_or(NOWHERE, |group| json(200, &group))
        }
        Route::Resources(group, version) => {
            discovery::resources(model, &group, &version).map_or(NOWHERE, |list| json(200, &list))
        }
        Route::OpenApi(path) if path == "v2" => {
            Answer::Typed(openapi::v2::MEDIA_TYPE, openapi::v2::document(model).into())
        }
        Route::OpenApi(path) => {
            openapi::document(model, &path).map_or(NOWHERE, |document| json(200, &document))
        }
        Route::Nowhere => NOWHERE,
        Route::NoResource => return Err(Status::no_endpoint()),
        Route::Resource(target) if !target.subresource.is_empty() => {
            subresource(model, now, request, &target)?
        }
        Route::Resource(target) if target.name.is_empty() => {
            collection(model, now, request, &target)?
        }
        Route::Resource(target) => object(model, now, request, &target)?,
    })
}

fn collection(
    model: &mut Model,
    now: Time,
    request: &AuthenticatedRequest<'_>,
    target: &Target,
) -> Result<Answer> {
    let resource = &target.resource;
    let allowed = |verb: &str| {
        if resource.verbs.contains(&verb) {
            Ok(())
        } else {
            Err(Status::method_not_allowed())
        }
    };
    match request.method {
        Method::GET => {
            allowed("list")?;
            let form = form(request)?;
            let options = ListOptions::parse(&request.query)?;
            if options.watch {
                return watch(model, target, &options, form, now);
            }
            let page = model.list(target, &options)?;
            Ok(Answer::List(
                page,
                Encoder::new(resource.clone(), form, now),
            ))
        }
        Method::POST => {
            allowed("create")?;
            check_namespaced(target)?;
            let options = write_options(request, "CreateOptions")?;
            if resource.kind.ends_with("Review") && resource.custom.is_none() {
                let body = request.object()?;
                let review = model.review(now, target, body, options.strict, &request.user)?;
                return Ok(json(201, &review));
            }
            if resource.storage_version.is_empty() {
                return Err(Status::not_simulated(&resource.plural));
            }
            let form = form(request)?;
            let created = model.create(now, target, request.object()?, &options)?;
            stored(201, now, form, target, &created)
        }
        Method::DELETE => {
            allowed("deletecollection")?;
            check_namespaced(target)?;
            let list = ListOptions::parse(&request.query)?;
            let options = DeleteOptions::parse(&request.query, delete_body(request)?)?;
            let page = model.delete_collection(now, target, &list, &options)?;
            Ok(Answer::List(
                page,
                Encoder::new(resource.clone(), Form::Full, now),
            ))
        }
        _ => Err(Status::method_not_allowed()),
    }
}

fn object(
    model: &mut Model,
    now: Time,
    request: &AuthenticatedRequest<'_>,
    target: &Target,
) -> Result<Answer> {
    let form = form(request)?;
    match request.method {
        Method::GET => {
            let version = request.query.get("resourceVersion").unwrap_or_default();
            let found = model.get(target, version)?;
            stored(200, now, form, target, &found)
        }
        Method::PUT => {
            let options = write_options(request, "UpdateOptions")?;
            let (written, created) = model.update(now, target, request.object()?, &options)?;
            let code = if created { 201 } else { 200 };
            stored(code, now, form, target, &written)
        }
        Method::PATCH => {
            let how = patch_type(request, target)?;
            let options = patch_options(request, how)?;
            let body = patch_body(request, how);
            let (written, created) = model.patch(now, target, how, body, &options)?;
            let code = if created { 201 } else { 200 };
            stored(code, now, form, target, &written)
        }
        Method::DELETE => {
            let options = DeleteOptions::parse(&request.query, delete_body(request)?)?;
            match model.delete(now, target, &options)? {
                DeleteAnswer::Gone(details) => {
                    Ok(json(200, &status::success(Some(&details), None)))
                }
                DeleteAnswer::Object(last) => {
                    // With `orphanDependents: false`, the code shows that the owner
                    // still exists.
                    let waits = options.orphan_dependents == Some(false)
                        && !target.resource.rules.returns_deleted;
                    stored(if waits { 202 } else { 200 }, now, form, target, &last)
                }
            }
        }
        _ => Err(Status::method_not_allowed()),
    }
}

fn subresource(
    model: &mut Model,
    now: Time,
    request: &AuthenticatedRequest<'_>,
    target: &Target,
) -> Result<Answer> {
    let parent = Target::new(&target.resource, &target.namespace, &target.name);
    let done = |code: u16| Ok(json(code, &status::success(None, Some(code))));
    match (target.subresource.as_str(), &request.method) {
        ("status", &Method::GET | &Method::PUT | &Method::PATCH) | ("finalize", &Method::PUT) => {
            object(model, now, request, target)
        }
        ("scale", &Method::GET) => Ok(json(200, &model.scale(&parent)?)),
        ("scale", &Method::PUT) => {
            let options = write_options(request, "UpdateOptions")?;
            let scale = model.set_scale(now, &parent, None, request.object()?, &options)?;
            Ok(json(200, &scale))
        }
        ("scale", &Method::PATCH) => {
            let how = patch_type(request, target)?;
            let options = patch_options(request, how)?;
            let body = patch_body(request, how);
            Ok(json(
                200,
                &model.set_scale(now, &parent, Some(how), body, &options)?,
            ))
        }
        ("eviction", &Method::POST) => {
            let options = write_options(request, "CreateOptions")?;
            match model.evict(now, &parent, request.object()?, &options)? {
                None => done(201),
                Some(failure) => Ok(json(201, &failure.to_json())),
            }
        }
        ("token", &Method::POST) => {
            write_options(request, "CreateOptions")?;
            let token = model.issue_token(now, &parent, request.object()?)?;
            Ok(json(201, &token))
        }
        ("binding", &Method::POST) => {
            let options = write_options(request, "CreateOptions")?;
            model.bind(now, &parent, request.object()?, &options)?;
            done(201)
        }
        (name, method) => {
            let verbs = target
                .resource
                .subresource(name)
                .map(|sub| sub.verbs.as_slice());
            let verb = match *method {
                Method::GET => "get",
                Method::POST => "create",
                Method::PUT => "update",
                Method::PATCH => "patch",
                Method::DELETE => "delete",
                _ => "",
            };
            if verbs.is_some_and(|verbs| verbs.contains(&verb)) {
                return Err(Status::not_simulated(&format!(
                    "{}/{name}",
                    target.resource.plural
                )));
            }
            Err(Status::method_not_allowed())
        }
    }
}

fn watch(
    model: &mut Model,
    target: &Target,
    options: &ListOptions,
    form: Form,
    now: Time,
) -> Result<Answer> {
    if !target.resource.verbs.contains(&"watch") {
        return Err(Status::method_not_allowed());
    }
    let start = model.watch(now, target, options, form)?;
    Ok(Answer::Watch(Box::new(start)))
}

fn stored(
    code: u16,
    now: Time,
    form: Form,
    target: &Target,
    object: &StoredObject,
) -> Result<Answer> {
    let mut bytes = Vec::with_capacity(object.len() + 64);
    Encoder::new(target.resource.clone(), form, now).object(object, &mut bytes)?;
    Ok(Answer::Json(code, bytes.into()))
}

/// The form of objects that the client accepts.
fn form(request: &Request) -> Result<Form> {
    let form = accept::objects(&request.accept)?;
    Ok(match form {
        Form::Table(_) => {
            let include = request.query.get("includeObject").unwrap_or_default();
            Form::Table(Include::parse(include))
        }
        other => other,
    })
}

fn json(code: u16, value: &Value) -> Answer {
    Answer::Json(code, value.to_string().into())
}

fn delete_body(request: &Request) -> Result<Option<Value>> {
    if request.body.is_empty() {
        return Ok(None);
    }
    request.object()?.parse("DeleteOptions").map(Some)
}

/// Of a namespaced resource, all namespaces together can only be listed and watched.
fn check_namespaced(target: &Target) -> Result<()> {
    if !target.resource.namespaced || !target.namespace.is_empty() {
        return Ok(());
    }
    // kube-apiserver serves custom resources by a handler of their own.
    Err(if target.resource.custom.is_some() {
        Status::no_endpoint()
    } else {
        Status::method_not_allowed()
    })
}

/// The options of a write. The default field manager is the first part of the user agent.
fn write_options(request: &AuthenticatedRequest<'_>, kind: &str) -> Result<WriteOptions> {
    let mut options = WriteOptions::parse(&request.query, kind)?;
    options.writer = Some(request.user.clone());
    if options.field_manager.is_empty() {
        let agent = request.user_agent.split('/').next().unwrap_or_default();
        agent.clone_into(&mut options.field_manager);
    }
    Ok(options)
}

fn patch_options(request: &AuthenticatedRequest<'_>, how: PatchType) -> Result<WriteOptions> {
    let kind = if how == PatchType::Apply {
        APPLY
    } else {
        "PatchOptions"
    };
    write_options(request, kind)
}

fn patch_body(request: &Request, how: PatchType) -> Body {
    if how == PatchType::Apply {
        Body::YamlText(request.body.clone())
    } else {
        Body::JsonText(request.body.clone())
    }
}

fn patch_type(request: &Request, target: &Target) -> Result<PatchType> {
    const CUSTOM: &[&str] = &[
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/apply-patch+yaml",
    ];
    let custom = target.resource.custom.is_some();
    match PatchType::of_media_type(&request.content_type) {
        Some(PatchType::Strategic) | None if custom => Err(Status::unsupported_media(CUSTOM)),
        Some(how) => Ok(how),
        None => Err(Status::unsupported_patch()),
    }
}
