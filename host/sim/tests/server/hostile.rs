//! Bad input of any kind is answered with an error, never with a panic or a
//! hang.

use davit_sim::api::{self, Answer};
use davit_sim::patch::{apply_json, apply_merge, apply_strategic};
use davit_sim::request::{Query, Request};
use davit_sim::selector::LabelSelector;
use davit_sim::{Config, Model, Time};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn model() -> Model {
    let mut model = Model::new(Config::default(), Time::from_unix(0)).expect("starts");
    for name in ["a", "b"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": name}, "finalizers": ["e.com/x"]},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "env": [{"name": "A"}]}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        model.import(Time::from_unix(0), pod).expect("imports");
    }
    model
}

/// JSON with names and directives that the code treats specially.
fn json_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("a".to_owned()),
        Just("delete".to_owned()),
        Just("replace".to_owned()),
        Just("2026-01-01T00:00:00Z".to_owned()),
        ".{0,6}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((field_name(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn field_name() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "metadata",
        "spec",
        "status",
        "name",
        "namespace",
        "labels",
        "finalizers",
        "uid",
        "ownerReferences",
        "conditions",
        "containers",
        "env",
        "type",
        "resourceVersion",
        "deletionTimestamp",
        "$patch",
        "$retainKeys",
        "$setElementOrder/conditions",
        "$deleteFromPrimitiveList/finalizers",
        "$setElementOrder/finalizers",
        "kind",
        "apiVersion",
        "op",
        "path",
        "from",
        "value",
        "preconditions",
        "propagationPolicy",
        "gracePeriodSeconds",
        "target",
        "versions",
        "names",
        "group",
        "schema",
        "openAPIV3Schema",
        "properties",
    ];
    prop_oneof![
        8 => prop::sample::select(KNOWN).prop_map(str::to_owned),
        1 => ".{0,5}",
    ]
}

fn path() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "/api/v1/pods",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/a",
        "/api/v1/namespaces/default/pods/a/status",
        "/api/v1/namespaces/default/pods/a/eviction",
        "/api/v1/namespaces/default/pods/a/binding",
        "/api/v1/namespaces/default",
        "/api/v1/namespaces/default/finalize",
        "/api/v1/nodes/n",
        "/api/v1/namespaces/default/events",
        "/apis/events.k8s.io/v1/namespaces/default/events/x",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/apps/v1/namespaces/default/deployments/d/scale",
        "/apis",
        "/api",
        "/version",
        "/openapi/v3",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/openapi/v3/api/v1",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x.y",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
    ];
    prop_oneof![
        6 => prop::sample::select(KNOWN).prop_map(str::to_owned),
        1 => "/[a-z/%.0-9]{0,30}",
        1 => ".{0,30}",
    ]
}

fn query() -> impl Strategy<Value = String> {
    let parameter = prop_oneof![
        Just("watch"),
        Just("limit"),
        Just("continue"),
        Just("resourceVersion"),
        Just("resourceVersionMatch"),
        Just("labelSelector"),
        Just("fieldSelector"),
        Just("sendInitialEvents"),
        Just("dryRun"),
        Just("timeoutSeconds"),
        Just("gracePeriodSeconds"),
        Just("fieldManager"),
        Just("includeObject"),
    ];
    let value = prop_oneof![
        Just("1".to_owned()),
        Just("All".to_owned()),
        Just("a%3Da".to_owned()),
        Just("spec.nodeName%3Dn".to_owned()),
        Just("Exact".to_owned()),
        Just("18446744073709551615".to_owned()),
        Just("-9223372036854775808".to_owned()),
        ".{0,12}",
    ];
    prop::collection::vec((parameter, value), 0..4).prop_map(|pairs| {
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        pairs.join("&")
    })
}

fn request() -> impl Strategy<Value = Request> {
    let method =
        prop::sample::select(&["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "WEIRD"][..]);
    let content_type = prop::sample::select(
        &[
            "application/json",
            "application/merge-patch+json",
            "application/json-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "",
        ][..],
    );
    let accept = prop::sample::select(
        &[
            "",
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            "text/html",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        ][..],
    );
    let body = prop_oneof![
        6 => json_value().prop_map(|value| value.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => ".{0,40}".prop_map(String::into_bytes),
        1 => Just(vec![b'['; 5000]),
    ];
    (method, path(), query(), content_type, accept, body).prop_map(
        |(method, path, query, content_type, accept, body)| Request {
            method: method.parse().expect("a method"),
            path,
            query: Query::parse(&query),
            content_type: content_type.to_owned(),
            accept: accept.to_owned(),
            body: body.into(),
            ..Request::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_requests_are_answered(requests in prop::collection::vec(request(), 1..12)) {
        let mut model = model();
        for (second, request) in requests.iter().enumerate() {
            let now = Time::from_unix(i64::try_from(second).expect("small"));
            let before = model.version();
            match api::handle(&mut model, now, request) {
                Answer::Failed(status) | Answer::Denied(status) => {
                    prop_assert!((400..600).contains(&status.code), "{status:?}");
                    prop_assert!(!status.message.is_empty());
                }
                Answer::Json(code, body) => {
                    prop_assert!((200..300).contains(&code));
                    prop_assert!(serde_json::from_slice::<Value>(&body).is_ok());
                }
                Answer::Watch(start) => {
                    let mut start = *start;
                    let mut lines = Vec::new();
                    start.watch.encode_initial(&start.initial, &mut lines).expect("encodes");
                    if let Ok(events) = start.watch.take(&model, 100) {
                        start.watch.encode(&events, &mut lines).expect("encodes");
                    }
                    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                        prop_assert!(serde_json::from_slice::<Value>(line).is_ok());
                    }
                }
                Answer::List(page, encoder) => {
                    let mut bytes = encoder.list_head(&page.metadata);
                    for (at, item) in page.items.iter().enumerate() {
                        if at > 0 {
                            bytes.push(b',');
                        }
                        encoder.item(item, &mut bytes).expect("encodes");
                    }
                    bytes.extend_from_slice(davit_sim::encode::Encoder::LIST_TAIL);
                    prop_assert!(serde_json::from_slice::<Value>(&bytes).is_ok());
                }
                Answer::Text(..) | Answer::Typed(..) => {}
            }
            prop_assert!(model.version() >= before);
        }
    }

    #[test]
    fn patches_apply_or_fail(target in json_value(), patch in json_value()) {
        let mut value = target.clone();
        apply_merge(&mut value, patch.clone());
        let _ = apply_json(&mut target.clone(), &json!([patch.clone()]));
        let mut merged = target.clone();
        if apply_strategic("Pod", &mut merged, patch.clone()).is_ok() {
            // No directive remains in an object that had none.
            let clean = !target.to_string().contains('$');
            prop_assert!(!clean || !merged.to_string().contains("\"$patch\""), "{target} + {patch} = {merged}");
        }
    }

    #[test]
    fn label_selectors_parse_or_fail(text in "[a-z!=<>(), in.\\-]{0,30}|.{0,20}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            let _ = selector.matches(&std::collections::BTreeMap::new());
        }
    }
}
