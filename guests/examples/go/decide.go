// Package export_davit_controller_decide deletes the oldest terminated pods above a threshold,
// as the threshold of Kubernetes' pod garbage collector does.
package export_davit_controller_decide

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"wit_component/davit_controller_cache"
	"wit_component/davit_controller_decisions"
	"wit_component/davit_controller_manifests"
	"wit_component/davit_controller_types"

	witTypes "go.bytecodealliance.org/pkg/wit/types"
)

const (
	watch = "pods"
	index = "phase"
	// How many pods one answer of the cache holds at most. The copy of a page is in the
	// guest's memory.
	page         = 500
	periodMillis = 20_000
	// The host refuses an answer with more plans in one decision. The next tick has the rest.
	maxPlans = 10_000
	schema   = `{"type": "object", "additionalProperties": false, "properties": {
		"terminatedPodThreshold": {"type": "integer", "minimum": 0, "default": 12500}}}`
)

var terminated = []string{"Succeeded", "Failed"}

// Set by Describe, which the host calls first in every instance.
var threshold int

type pod struct {
	Metadata struct {
		Name, Namespace, UID string
		CreationTimestamp    string
	}
	Status struct{ Phase, Reason string }
}

// Describe checks the configuration.
func Describe(config []byte) witTypes.Result[davit_controller_manifests.Manifest, davit_controller_manifests.ConfigError] {
	settings := map[string]json.RawMessage{}
	if err := json.Unmarshal(config, &settings); err != nil {
		return refused("", err.Error())
	}
	threshold = 12500
	for field, text := range settings {
		// The host does not apply the schema: a misspelled setting would count as none.
		if field != "terminatedPodThreshold" {
			return refused(field, "there is no such setting")
		}
		var value *int
		if json.Unmarshal(text, &value) != nil || value == nil || *value < 0 {
			return refused(field, "it must be a whole number, 0 or more")
		}
		threshold = *value
	}
	return witTypes.Ok[davit_controller_manifests.Manifest, davit_controller_manifests.ConfigError](manifest())
}

func refused(field, message string) witTypes.Result[davit_controller_manifests.Manifest, davit_controller_manifests.ConfigError] {
	return witTypes.Err[davit_controller_manifests.Manifest](davit_controller_manifests.ConfigError{
		Field: field, Message: message,
	})
}

// Reconcile decides about each item.
func Reconcile(_ int64, items []davit_controller_decisions.WorkItem) []davit_controller_decisions.Decision {
	decisions := make([]davit_controller_decisions.Decision, 0, len(items))
	for range items {
		decisions = append(decisions, davit_controller_decisions.Decision{
			Plans: plans(), Verdict: davit_controller_decisions.MakeVerdictDone(),
		})
	}
	return decisions
}

func plans() []davit_controller_decisions.Plan {
	// Counting copies no object, so it comes first.
	count := 0
	for _, phase := range terminated {
		count += int(davit_controller_cache.IndexCount(watch, index, phase))
	}
	if threshold == 0 || count <= threshold {
		return nil
	}
	var pods []pod
	for _, phase := range terminated {
		pods = append(pods, podsIn(phase)...)
	}
	slices.SortFunc(pods, compare)
	message := fmt.Sprintf("%d terminated pods, the threshold is %d", count, threshold)
	var plans []davit_controller_decisions.Plan
	for _, pod := range pods[:min(count-threshold, maxPlans)] {
		plans = append(plans, deletion(pod, message))
	}
	return plans
}

func podsIn(phase string) []pod {
	var pods []pod
	for cursor := uint64(0); ; {
		read := davit_controller_cache.ByIndex(watch, index, phase, cursor, page)
		for _, object := range read.Objects {
			var one pod
			if err := json.Unmarshal(object.Data, &one); err != nil {
				panic(err)
			}
			pods = append(pods, one)
		}
		if read.Next.Tag() == witTypes.OptionNone {
			return pods
		}
		cursor = read.Next.Some()
	}
}

// compare puts evicted pods first, then orders by age. Names and uid break ties, so that the
// same cluster always leads to the same plans.
func compare(one, other pod) int {
	stays := func(pod pod) int {
		if pod.Status.Phase == "Failed" && pod.Status.Reason == "Evicted" {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(stays(one), stays(other)),
		cmp.Compare(one.Metadata.CreationTimestamp, other.Metadata.CreationTimestamp),
		cmp.Compare(one.Metadata.Name, other.Metadata.Name),
		cmp.Compare(one.Metadata.Namespace, other.Metadata.Namespace),
		cmp.Compare(one.Metadata.UID, other.Metadata.UID),
	)
}

func deletion(pod pod, message string) davit_controller_decisions.Plan {
	return davit_controller_decisions.Plan{
		Target: davit_controller_types.ObjectRef{
			ApiVersion: "v1", Kind: "Pod",
			Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name, Uid: pod.Metadata.UID,
		},
		Reason:  "terminated",
		Message: message,
		Steps: []davit_controller_decisions.Step{
			davit_controller_decisions.MakeStepDelete(davit_controller_decisions.DeleteOptions{
				GracePeriodSeconds: witTypes.Some[int64](0),
			}),
		},
		WhenCancelled: witTypes.None[davit_controller_decisions.QueueKey](),
	}
}

func manifest() davit_controller_manifests.Manifest {
	resource := davit_controller_types.ApiResource{Version: "v1", Plural: "pods"}
	return davit_controller_manifests.Manifest{
		Name:    "podgc-go",
		Version: "0.1.0",
		Summary: "Deletes the oldest terminated pods above a threshold.",
		Watches: []davit_controller_manifests.Watch{{
			Name:   watch,
			Source: davit_controller_manifests.MakeSourceOne(resource),
			Fields: []string{"metadata.creationTimestamp", "status.phase", "status.reason"},
			Indexes: []davit_controller_manifests.Index{{
				Name: index, Path: "status.phase",
				Filter: davit_controller_manifests.MakeIndexFilterOnly(terminated),
			}},
		}},
		Queues: []davit_controller_manifests.QueueSpec{{
			Name: "passes", Workers: 1, Batch: 1,
			RetryInitial: periodMillis, RetryMax: periodMillis,
		}},
		Ticks:        []davit_controller_manifests.Tick{{Queue: "passes", Key: "cluster", Period: periodMillis}},
		Permissions:  []davit_controller_manifests.Permission{{Verb: "delete", Resource: "pods"}},
		ConfigSchema: schema,
	}
}
