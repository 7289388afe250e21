use serde_json::json;

use super::*;

/// A document of an API server with few kinds.
fn document() -> Value {
    let kind = |group: &str, version: &str, kind: &str| {
        json!({"get": {
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        }})
    };
    let of = |kind: &str| json!([{"group": "", "version": "v1", "kind": kind}]);
    let reference = |name: &str| json!({"$ref": format!("#/definitions/{name}")});
    let things = ["v1", "v2", "v10", "v2beta1"];
    let things =
        things.map(|version| json!({"group": "x.io", "version": version, "kind": "Thing"}));
    json!({
        "info": {"title": "Kubernetes", "version": "1.99"},
        "paths": {
            "/version/": {"get": {}},
            "/api/v1/": {"get": {}},
            "/api/v1/pods": kind("", "v1", "Pod"),
            "/api/v1/namespaces/{namespace}/pods": kind("", "v1", "Pod"),
            "/api/v1/namespaces/{namespace}/pods/{name}": kind("", "v1", "Pod"),
            "/api/v1/namespaces/{namespace}/pods/{name}/status": kind("", "v1", "Pod"),
            "/api/v1/namespaces/{name}/finalize": kind("", "v1", "Namespace"),
            "/api/v1/watch/pods": kind("", "v1", "Pod"),
            "/api/v1/nodes": kind("", "v1", "Node"),
            "/apis/x.io/v1/things": {"post": kind("x.io", "v1", "Thing")["get"]},
            "/apis/x.io/v2beta1/things": kind("x.io", "v2beta1", "Thing"),
            "/apis/x.io/v10/things": kind("x.io", "v10", "Thing"),
            "/apis/x.io/v2/things": kind("x.io", "v2", "Thing"),
            "/apis/x.io/v2/others": kind("y.io", "v2", "Thing"),
        },
        "definitions": {
            "io.k8s.api.core.v1.Pod": {
                "x-kubernetes-group-version-kind": of("Pod"),
                "description": "Nobody reads it.",
                "properties": {
                    "metadata": reference("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
                    "spec": reference("io.k8s.api.core.v1.PodSpec"),
                },
            },
            "io.k8s.api.core.v1.PodSpec": {"properties": {
                "above": reference("io.k8s.api.core.v1.PodSpec"),
                "bytes": {"type": "string", "format": "byte"},
                "count": {"type": "integer", "format": "int64"},
                "extra": {"type": "object", "additionalProperties": {
                    "type": "array", "items": {"type": "string"},
                }},
                "on": {"type": "boolean"},
                "port": reference("io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
                "raw": reference("io.k8s.apimachinery.pkg.runtime.RawExtension"),
                "share": {"type": "number", "format": "double"},
                "size": reference("io.k8s.apimachinery.pkg.api.resource.Quantity"),
            }},
            "io.k8s.api.core.v1.Node": {
                "x-kubernetes-group-version-kind": of("Node"),
                "properties": {"json": reference("io.k8s.api.core.v1.JSON")},
            },
            "io.k8s.api.core.v1.JSON": {},
            "io.k8s.api.core.v1.PodList": {
                "x-kubernetes-group-version-kind": of("PodList"),
                "properties": {"items": {"type": "array"}},
            },
            "io.k8s.api.x.v1.Thing": {
                "x-kubernetes-group-version-kind": things,
                "properties": {"pods": {
                    "type": "array", "items": reference("io.k8s.api.core.v1.Pod"),
                }},
            },
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"properties": {
                "created": reference("io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
                "name": {"type": "string"},
            }},
            "io.k8s.apimachinery.pkg.apis.meta.v1.Time": {"type": "string", "format": "date-time"},
            "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
            "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object"},
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
                "type": "string", "format": "int-or-string",
            },
        },
    })
}

#[test]
fn the_kinds_of_a_document_are_written_with_the_types_below_them() {
    let expected = "\
kubernetes 1.99

v1 nodes Node cluster core.v1.Node
v1 pods Pod namespaced core.v1.Pod
x.io/v10 things Thing cluster x.v1.Thing
x.io/v2 things Thing cluster x.v1.Thing
x.io/v1 things Thing cluster x.v1.Thing
x.io/v2beta1 things Thing cluster x.v1.Thing

core.v1.Node
 json any
core.v1.Pod
 metadata meta.v1.ObjectMeta
 spec PodSpec
core.v1.PodSpec
 above PodSpec
 bytes bytes
 count integer
 extra {}[]string
 on boolean
 port int-or-string
 raw any
 share number
 size quantity
meta.v1.ObjectMeta
 created time
 name string
x.v1.Thing
 pods []core.v1.Pod
";
    let text = openapi::kinds(&document()).unwrap().to_string();
    assert_eq!(text, format!("{HEADER}{expected}"));
}

#[test]
fn a_document_that_would_lose_something_is_refused() {
    let error = |pointer: &str, value: Value| {
        let mut document = document();
        *document.pointer_mut(pointer).unwrap() = value;
        format!("{:#}", openapi::kinds(&document).unwrap_err())
    };
    let count = "/definitions/io.k8s.api.core.v1.PodSpec/properties/count";
    for (pointer, value, expected) in [
        ("/paths", json!(null), "it has no paths"),
        ("/info/version", json!(null), "it has no info.version"),
        (
            count,
            json!({"type": "string", "format": "uri"}),
            "the field count of io.k8s.api.core.v1.PodSpec: the type Some(\"string\") with the \
             format Some(\"uri\") is not known",
        ),
        (
            count,
            json!({"$ref": "#/definitions/a.b.C"}),
            "the field count of io.k8s.api.core.v1.PodSpec: there is no definition a.b.C",
        ),
        (
            "/paths/~1api~1v1~1nodes/get/x-kubernetes-group-version-kind/kind",
            json!("Nod"),
            "no definition is of the kind [\"\", \"v1\", \"Nod\"]",
        ),
    ] {
        assert_eq!(error(pointer, value), expected, "{pointer}");
    }
}

#[test]
fn types_with_the_same_short_name_are_refused() {
    let mut document = document();
    let definitions = document["definitions"].as_object_mut().unwrap();
    let other = definitions["io.k8s.api.core.v1.PodSpec"].clone();
    definitions.insert("io.x.core.v1.PodSpec".to_owned(), other);
    let fields = &mut document["definitions"]["io.k8s.api.core.v1.Node"]["properties"];
    fields["other"] = json!({"$ref": "#/definitions/io.x.core.v1.PodSpec"});
    let error = openapi::kinds(&document).unwrap_err().to_string();
    assert!(error.contains("two types have the short name"), "{error}");
}

/// The spelling of a type in a package.
fn spelling(found: davit_kinds::Type, package: &str) -> String {
    use davit_kinds::Type;
    match found {
        Type::List(element) => format!("[]{}", spelling(element.get(), package)),
        Type::Map(value) => format!("{{}}{}", spelling(value.get(), package)),
        found => {
            let name = found.to_string();
            let own = name.strip_prefix(package);
            let own = own.and_then(|rest| rest.strip_prefix('.'));
            own.unwrap_or(&name).to_owned()
        }
    }
}

/// `davit-kinds` reads everything that this module writes, and the committed file is
/// what it would write.
#[test]
fn the_committed_data_is_what_is_read_from_it() {
    let kinds = davit_kinds::kinds().map(|kind| Kind {
        api_version: kind.api_version(),
        plural: kind.plural.to_owned(),
        name: kind.kind.to_owned(),
        is_namespaced: kind.is_namespaced,
        root: kind.root().to_string(),
    });
    let types = davit_kinds::object_types().map(|object| {
        let (package, _) = object.name().rsplit_once('.').unwrap();
        let fields = object.fields().map(|field| {
            let spelling = spelling(field.field_type, package);
            (field.name.to_owned(), spelling)
        });
        (object.name().to_owned(), fields.collect())
    });
    let read = BuiltIn {
        version: davit_kinds::kubernetes_version().to_owned(),
        kinds: kinds.collect(),
        types: types.collect(),
    };
    let committed = crate::workspace().unwrap().join(FILE);
    let committed = fs::read_to_string(committed).unwrap();
    assert!(
        read.to_string() == committed,
        "the file and its parsed form differ"
    );
    assert!(committed.len() < 150_000, "{} bytes", committed.len());
}
