//! Which lists a strategic merge patch merges, and by which key: the
//! `patchStrategy` and `patchMergeKey` tags of the built-in types. Every list
//! that is not here is replaced whole.

/// How a list of a built-in type is patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListStrategy {
    /// The patch's list replaces the old one.
    Replace,
    /// Objects with the same value of this field are one element.
    ByKey(&'static str),
    /// A set of plain values.
    Set,
}

/// How the list at `path` is patched. A path is the field names from the
/// object's root, without list positions.
#[must_use]
pub(super) fn list_strategy(kind: &str, path: &[&str]) -> ListStrategy {
    if let ["metadata", rest @ ..] = path {
        return metadata(rest);
    }
    if let Some(rest) = pod_spec(kind, path) {
        return in_pod_spec(rest);
    }
    if let Some(["metadata", rest @ ..]) = template(kind, path) {
        return metadata(rest);
    }
    match (kind, path) {
        // Their conditions are a map for server-side apply only.
        ("StorageVersion" | "CustomResourceDefinition", _) => ListStrategy::Replace,
        ("Service", ["spec", "ports"]) => ListStrategy::ByKey("port"),
        (_, ["status", "conditions"]) | ("Node", ["status", "addresses"]) => {
            ListStrategy::ByKey("type")
        }
        ("Node", ["spec", "podCIDRs"]) => ListStrategy::Set,
        ("Pod", ["status", "podIPs" | "hostIPs"]) => ListStrategy::ByKey("ip"),
        ("ServiceAccount", ["secrets" | "imagePullSecrets"])
        | ("Pod", ["status", "resourceClaimStatuses"]) => ListStrategy::ByKey("name"),
        _ => ListStrategy::Replace,
    }
}

fn metadata(path: &[&str]) -> ListStrategy {
    match path {
        ["ownerReferences"] => ListStrategy::ByKey("uid"),
        ["finalizers"] => ListStrategy::Set,
        _ => ListStrategy::Replace,
    }
}

/// The rest of `path` below a pod template, if the path goes through one.
fn template<'a, 'b>(kind: &str, path: &'a [&'b str]) -> Option<&'a [&'b str]> {
    match (kind, path) {
        ("CronJob", ["spec", "jobTemplate", "spec", "template", rest @ ..])
        | ("PodTemplate", ["template", rest @ ..])
        | (_, ["spec", "template", rest @ ..]) => Some(rest),
        _ => None,
    }
}

fn pod_spec<'a, 'b>(kind: &str, path: &'a [&'b str]) -> Option<&'a [&'b str]> {
    let holder = if kind == "Pod" {
        Some(path)
    } else {
        template(kind, path)
    };
    match holder? {
        ["spec", rest @ ..] => Some(rest),
        _ => None,
    }
}

fn in_pod_spec(path: &[&str]) -> ListStrategy {
    const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
    match path {
        [list] if CONTAINERS.contains(list) => ListStrategy::ByKey("name"),
        ["volumes" | "imagePullSecrets" | "resourceClaims" | "schedulingGates"] => {
            ListStrategy::ByKey("name")
        }
        ["hostAliases"] => ListStrategy::ByKey("ip"),
        ["topologySpreadConstraints"] => ListStrategy::ByKey("topologyKey"),
        [list, "env"] if CONTAINERS.contains(list) => ListStrategy::ByKey("name"),
        [list, "ports"] if CONTAINERS.contains(list) => ListStrategy::ByKey("containerPort"),
        [list, "volumeMounts"] if CONTAINERS.contains(list) => ListStrategy::ByKey("mountPath"),
        [list, "volumeDevices"] if CONTAINERS.contains(list) => ListStrategy::ByKey("devicePath"),
        _ => ListStrategy::Replace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_through_templates() {
        let by = ListStrategy::ByKey;
        assert_eq!(
            list_strategy("Pod", &["spec", "containers", "env"]),
            by("name")
        );
        assert_eq!(
            list_strategy("Pod", &["spec", "tolerations"]),
            ListStrategy::Replace
        );
        assert_eq!(
            list_strategy(
                "Deployment",
                &["spec", "template", "spec", "containers", "ports"]
            ),
            by("containerPort")
        );
        assert_eq!(
            list_strategy(
                "CronJob",
                &["spec", "jobTemplate", "spec", "template", "spec", "volumes"]
            ),
            by("name")
        );
        assert_eq!(
            list_strategy("Node", &["spec", "taints"]),
            ListStrategy::Replace
        );
        assert_eq!(
            list_strategy("ConfigMap", &["metadata", "finalizers"]),
            ListStrategy::Set
        );
        assert_eq!(
            list_strategy("PodDisruptionBudget", &["status", "conditions"]),
            by("type")
        );
        assert_eq!(
            list_strategy("StorageVersion", &["status", "conditions"]),
            ListStrategy::Replace
        );
    }
}
