use std::time::Duration;

use davit_core::failure::FailureClass;
use davit_core::object::{ApiResource, ObjectRef};
use davit_core::path::FieldPath;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Reply, Server, mapping, pod, status};

fn fields(paths: &[&str]) -> Vec<FieldPath> {
    paths.iter().map(|path| path.parse().unwrap()).collect()
}

fn request(target: ObjectRef, paths: &[&str]) -> GetRequest {
    GetRequest {
        target,
        fields: fields(paths),
    }
}

fn stored(name: &str, uid: &str) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "7"},
        "spec": {"nodeName": "n1"},
    })
}

fn decode(data: &[u8]) -> Value {
    rmp_serde::from_slice(data).unwrap()
}

#[tokio::test(start_paused = true)]
async fn reads_run_in_parallel_and_keep_their_order() {
    let server = Server::new(|seen, _| match seen.uri.as_str() {
        "/api/v1/namespaces/ns/pods/p" => Reply::Json(200, stored("p", "u-1")),
        "/api/v1/namespaces/ns/pods/slow" => Reply::Silence,
        _ => Reply::Json(
            404,
            status(404, "NotFound", "not found", json!({"name": "q"})),
        ),
    });
    let named = |name: &str| ObjectRef {
        name: name.into(),
        uid: String::new(),
        ..pod()
    };
    let requests = [
        request(named("slow"), &[]),
        request(pod(), &["spec.nodeName"]),
        request(named("q"), &[]),
        request(
            ObjectRef {
                uid: "u-2".into(),
                ..pod()
            },
            &[],
        ),
        request(
            ObjectRef {
                kind: "Gadget".into(),
                ..pod()
            },
            &[],
        ),
    ];
    let start = tokio::time::Instant::now();
    let answers = get(&server.api(), &mapping(), &requests, usize::MAX).await;
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    let classes: Vec<_> = answers
        .iter()
        .map(|answer| answer.as_ref().err().map(|failure| failure.class))
        .collect();
    assert_eq!(
        classes,
        [
            Some(FailureClass::Timeout),
            None,
            Some(FailureClass::NotFound),
            Some(FailureClass::UidMismatch),
            Some(FailureClass::Unmappable),
        ]
    );
    let record = answers[1].as_ref().unwrap();
    assert_eq!(&*record.kind.kind, "Pod");
    assert_eq!(&*record.resource_version, "7");
    assert_eq!(
        decode(&record.data),
        json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u-1"},
            "spec": {"nodeName": "n1"},
        })
    );
}

#[tokio::test]
async fn only_metadata_is_requested_for_fields_of_metadata() {
    let server = Server::always(200, stored("p", "u-1"));
    let requests = [
        request(pod(), &[]),
        request(pod(), &["metadata.ownerReferences"]),
        request(pod(), &["spec"]),
    ];
    get(&server.api(), &mapping(), &requests, usize::MAX).await;
    let accepts: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| seen.header("accept").contains("as=PartialObjectMetadata;"))
        .collect();
    assert_eq!(accepts, [true, true, false]);
    assert_eq!(server.seen()[2].header("accept"), "application/json");
    assert_eq!(server.seen()[2].header("accept-encoding"), "identity");
}

fn list_request() -> ListRequest {
    ListRequest {
        resource: ApiResource::new("", "v1", "pods"),
        namespace: "ns".into(),
        label_selector: "app in (a,b)".into(),
        field_selector: String::new(),
        fields: fields(&["spec.nodeName"]),
    }
}

fn page(name: &str, continue_token: &str) -> Reply {
    let metadata = json!({"resourceVersion": "9", "continue": continue_token});
    let items = [stored(name, name)];
    Reply::Json(
        200,
        json!({"kind": "PodList", "metadata": metadata, "items": items}),
    )
}

#[tokio::test]
async fn a_list_is_read_completely_and_again_if_its_token_expires() {
    let server = Server::new(|_, before| match before {
        0 => page("a", "t1"),
        1 => Reply::Json(410, status(410, "Expired", "expired", json!({}))),
        2 => page("b", "t2"),
        _ => page("c", ""),
    });
    let records = list(&server.api(), &mapping(), &list_request(), usize::MAX)
        .await
        .unwrap();
    let names: Vec<_> = records
        .iter()
        .map(|record| decode(&record.data)["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["b", "c"]);
    let first = "/api/v1/namespaces/ns/pods?labelSelector=app%20in%20%28a%2Cb%29&limit=500";
    let uris: Vec<_> = server.seen().into_iter().map(|seen| seen.uri).collect();
    let with = |token: &str| format!("{first}&continue={token}");
    assert_eq!(
        uris,
        [first.to_owned(), with("t1"), first.to_owned(), with("t2")]
    );
}

#[tokio::test]
async fn the_error_of_a_list_names_the_resource() {
    let server = Server::always(403, status(403, "Forbidden", "no", json!({})));
    let failure = list(&server.api(), &mapping(), &list_request(), usize::MAX)
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::Forbidden);
    assert_eq!(
        failure.message,
        "list v1/pods in ns: the server answered 403 Forbidden: no"
    );
    let gadgets = ListRequest {
        resource: ApiResource::new("example.com", "v1", "gadgets"),
        ..list_request()
    };
    let failure = list(&server.api(), &mapping(), &gadgets, usize::MAX)
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::Unmappable);
}

#[tokio::test(start_paused = true)]
async fn a_read_is_repeated_when_the_server_is_overloaded() {
    let server = Server::new(|_, before| match before {
        0 => Reply::Later(503, "2", json!({})),
        _ => Reply::Json(200, stored("p", "u-1")),
    });
    let start = tokio::time::Instant::now();
    let answers = get(
        &server.api(),
        &mapping(),
        &[request(pod(), &[])],
        usize::MAX,
    )
    .await;
    assert!(answers[0].is_ok());
    assert_eq!(start.elapsed().as_secs(), 2);
}
