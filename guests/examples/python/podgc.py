"""Deletes the oldest terminated pods above a threshold, as the threshold of Kubernetes' pod
garbage collector does."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import cache, decisions, manifests, types

TERMINATED = ["Succeeded", "Failed"]
PODS = "pods"
BY_PHASE = "phase"
# How many pods one answer of the cache holds at most. The copy of a page is in the guest's memory.
PAGE = 500
# The host refuses an answer with more plans in one decision. The next tick has the rest.
MAX_PLANS = 10_000

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"terminatedPodThreshold": {"type": "integer", "minimum": 0, "default": 12500}},
}

# Set by `describe`, which the host calls first in every instance.
threshold = 0


class Payloads(exports.Payloads):
    def encoding(self) -> str:
        return "json"


class Decide(exports.Decide):
    def describe(self, config: bytes) -> manifests.Manifest:
        global threshold
        settings = json.loads(config)
        value = settings.pop("terminatedPodThreshold", 12500)
        # The host does not apply the schema: a misspelled setting would count as none.
        for field in settings:
            raise Err(manifests.ConfigError(field, "there is no such setting"))
        if type(value) is not int or value < 0:
            message = "it must be a whole number, 0 or more"
            # A `result` with an error is raised.
            raise Err(manifests.ConfigError("terminatedPodThreshold", message))
        threshold = value
        return manifest()

    def reconcile(self, now: int, items: list[decisions.WorkItem]) -> list[decisions.Decision]:
        return [decide() for _ in items]


def decide() -> decisions.Decision:
    # Counting copies no object, so it comes first.
    count = sum(cache.index_count(PODS, BY_PHASE, phase) for phase in TERMINATED)
    excess = max(0, count - threshold) if threshold else 0
    ends = min(excess, MAX_PLANS)
    message = f"{count} terminated pods, the threshold is {threshold}"
    plans = [deletion(pod, message) for pod in oldest(ends)] if ends else []
    return decisions.Decision(plans, [], decisions.Verdict_Done(), 0)


def oldest(count: int) -> list[dict]:
    pods = [pod for phase in TERMINATED for pod in pods_in_phase(phase)]
    return sorted(pods, key=age)[:count]


def pods_in_phase(phase: str):
    cursor = 0
    while cursor is not None:
        page = cache.by_index(PODS, BY_PHASE, phase, cursor, PAGE)
        yield from (json.loads(pod.data) for pod in page.objects)
        cursor = page.next


def age(pod: dict):
    """Evicted pods first, then by age. Names and uid break ties, so that the same cluster always
    leads to the same plans."""
    metadata, status = pod["metadata"], pod["status"]
    evicted = status["phase"] == "Failed" and status.get("reason") == "Evicted"
    created = metadata.get("creationTimestamp", "")
    return not evicted, created, metadata["name"], metadata["namespace"], metadata["uid"]


def deletion(pod: dict, message: str) -> decisions.Plan:
    metadata = pod["metadata"]
    target = types.ObjectRef("v1", "Pod", metadata["namespace"], metadata["name"], metadata["uid"])
    step = decisions.Step_Delete(decisions.DeleteOptions("", "", 0))
    return decisions.Plan(target, "terminated", message, [step], [], None)


def manifest() -> manifests.Manifest:
    by_phase = manifests.Index(
        name=BY_PHASE,
        path="status.phase",
        presence=False,
        unset=False,
        filter=manifests.IndexFilter_Only(TERMINATED),
        order=None,
    )
    pods = manifests.Watch(
        name=PODS,
        source=manifests.Source_One(types.ApiResource("", "v1", "pods")),
        namespace="",
        label_selector="",
        field_selector="",
        fields=["metadata.creationTimestamp", "status.phase", "status.reason"],
        indexes=[by_phase],
        optional=False,
    )
    passes = manifests.QueueSpec(
        name="passes",
        workers=1,
        batch=1,
        priority=0,
        retry_initial=20_000,
        retry_max=20_000,
        rate=None,
    )
    return manifests.Manifest(
        name="podgc-python",
        version="0.1.0",
        summary="Deletes the oldest terminated pods above a threshold.",
        watches=[pods],
        triggers=[],
        queues=[passes],
        ticks=[manifests.Tick("passes", "cluster", 20_000)],
        permissions=[manifests.Permission("delete", "", "pods")],
        metrics=[],
        config_schema=json.dumps(SCHEMA),
    )
