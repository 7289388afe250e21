/* Deletes the oldest terminated pods above a threshold, as the threshold of Kubernetes' pod
 * garbage collector does. */

#include <stdlib.h>
#include <string.h>

#include "controller_with_encoding.h"
#include "json.h"

typedef controller_with_encoding_string_t text_t;

static const char *const TERMINATED[] = {"Succeeded", "Failed"};
static const size_t PHASES = 2;
/* How many pods one answer of the cache holds at most. */
static const uint32_t PAGE = 500;
static const uint64_t PERIOD_MILLIS = 20000;
/* The host refuses an answer with more plans in one decision. The next tick has the rest. */
static const long long MAX_PLANS = 10000;
static const char SCHEMA[] =
    "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
    "\"terminatedPodThreshold\":{\"type\":\"integer\",\"minimum\":0,\"default\":12500}}}";

/* Set by describe, which the host calls first in every instance. */
static long long threshold;

struct pod {
    bool evicted;
    struct json created, name, namespace, uid;
};

struct pods {
    struct pod *ptr;
    size_t len;
    /* The pages that the texts of the pods are in. */
    davit_controller_cache_page_t *pages;
    size_t page_count;
};

/* No memory ends the call, as any other trap. */
static void *resize(void *ptr, size_t count, size_t size) {
    void *resized = realloc(ptr, count * size);
    if (resized == NULL && count > 0) abort();
    return resized;
}

/* An element of a list that the caller gets. */
static void *zeroed(size_t count, size_t size) {
    void *list = calloc(count, size);
    if (list == NULL && count > 0) abort();
    return list;
}

/* A text that an import reads. */
static text_t constant(const char *text) {
    text_t constant;
    controller_with_encoding_string_set(&constant, text);
    return constant;
}

/* A text that the host frees after an export has returned it. */
static void copy(text_t *to, struct json from) {
    controller_with_encoding_string_dup_n(to, from.ptr, from.len);
}

static void say(text_t *to, const char *text) { controller_with_encoding_string_dup(to, text); }

void exports_davit_controller_payloads_encoding(text_t *ret) { say(ret, "json"); }

static void read_page(struct pods *pods, const davit_controller_cache_page_t *page) {
    pods->ptr = resize(pods->ptr, pods->len + page->objects.len, sizeof *pods->ptr);
    for (size_t at = 0; at < page->objects.len; at++) {
        davit_controller_cache_object_t *object = &page->objects.ptr[at];
        struct json data = {(const char *)object->data.ptr, object->data.len};
        struct json metadata = json_member(data, "metadata"), status = json_member(data, "status");
        pods->ptr[pods->len++] = (struct pod){
            .evicted = json_equals(json_string(json_member(status, "phase")), "Failed") &&
                       json_equals(json_string(json_member(status, "reason")), "Evicted"),
            .created = json_string(json_member(metadata, "creationTimestamp")),
            .name = json_string(json_member(metadata, "name")),
            .namespace = json_string(json_member(metadata, "namespace")),
            .uid = json_string(json_member(metadata, "uid")),
        };
    }
}

static void read_phase(struct pods *pods, const char *phase) {
    text_t watch = constant("pods"), index = constant("phase"), value = constant(phase);
    uint64_t cursor = 0;
    bool has_next = true;
    while (has_next) {
        pods->pages = resize(pods->pages, pods->page_count + 1, sizeof *pods->pages);
        davit_controller_cache_page_t *page = &pods->pages[pods->page_count++];
        davit_controller_cache_by_index(&watch, &index, &value, cursor, PAGE, page);
        read_page(pods, page);
        has_next = page->next.is_some;
        cursor = page->next.val;
    }
}

static void free_pods(struct pods *pods) {
    for (size_t at = 0; at < pods->page_count; at++) {
        davit_controller_cache_page_free(&pods->pages[at]);
    }
    free(pods->pages);
    free(pods->ptr);
}

static int compare_texts(struct json one, struct json other) {
    size_t len = one.len < other.len ? one.len : other.len;
    int order = len == 0 ? 0 : memcmp(one.ptr, other.ptr, len);
    if (order != 0) return order;
    return (one.len > other.len) - (one.len < other.len);
}

/* Evicted pods first, then by age. Names and uid break ties, so that the same cluster always
 * leads to the same plans. */
static int compare(const void *left, const void *right) {
    const struct pod *one = left, *other = right;
    if (one->evicted != other->evicted) return one->evicted ? -1 : 1;
    int order = compare_texts(one->created, other->created);
    if (order == 0) order = compare_texts(one->name, other->name);
    if (order == 0) order = compare_texts(one->namespace, other->namespace);
    return order == 0 ? compare_texts(one->uid, other->uid) : order;
}

/* Appends to a text, and returns its end. What prints would import files from WASI. */
static char *append(char *end, const char *text) {
    size_t len = strlen(text);
    memcpy(end, text, len + 1);
    return end + len;
}

/* A number of at most 19 digits, 0 or more. */
static char *append_number(char *end, long long number) {
    char digits[20];
    char *at = digits + sizeof digits - 1;
    *at = 0;
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return append(end, at);
}

static void delete_pod(davit_controller_decisions_plan_t *plan, const struct pod *pod,
                       const char *message) {
    say(&plan->target.api_version, "v1");
    say(&plan->target.kind, "Pod");
    copy(&plan->target.namespace_, pod->namespace);
    copy(&plan->target.name, pod->name);
    copy(&plan->target.uid, pod->uid);
    say(&plan->reason, "terminated");
    say(&plan->message, message);
    plan->steps.ptr = zeroed(1, sizeof *plan->steps.ptr);
    plan->steps.len = 1;
    plan->steps.ptr->tag = DAVIT_CONTROLLER_DECISIONS_STEP_DELETE;
    plan->steps.ptr->val.delete_.grace_period_seconds.is_some = true;
}

static void decide(davit_controller_decisions_decision_t *decision) {
    text_t watch = constant("pods"), index = constant("phase");
    long long count = 0;
    /* Counting copies no object, so it comes first. */
    for (size_t at = 0; at < PHASES; at++) {
        text_t value = constant(TERMINATED[at]);
        count += davit_controller_cache_index_count(&watch, &index, &value);
    }
    decision->verdict.tag = DAVIT_CONTROLLER_DECISIONS_VERDICT_DONE;
    if (threshold == 0 || count <= threshold) return;

    struct pods pods = {0};
    for (size_t at = 0; at < PHASES; at++) read_phase(&pods, TERMINATED[at]);
    qsort(pods.ptr, pods.len, sizeof *pods.ptr, compare);
    char message[128];
    char *end = append_number(message, count);
    append_number(append(end, " terminated pods, the threshold is "), threshold);
    long long excess = count - threshold;
    decision->plans.len = (size_t)(excess < MAX_PLANS ? excess : MAX_PLANS);
    decision->plans.ptr = zeroed(decision->plans.len, sizeof *decision->plans.ptr);
    for (size_t at = 0; at < decision->plans.len; at++) {
        delete_pod(&decision->plans.ptr[at], &pods.ptr[at], message);
    }
    free_pods(&pods);
}

void exports_davit_controller_decide_reconcile(
    int64_t now, exports_davit_controller_decide_list_work_item_t *items,
    exports_davit_controller_decide_list_decision_t *ret) {
    (void)now;
    ret->len = items->len;
    ret->ptr = zeroed(ret->len, sizeof *ret->ptr);
    for (size_t at = 0; at < ret->len; at++) decide(&ret->ptr[at]);
    exports_davit_controller_decide_list_work_item_free(items);
}

static void declare_pods(davit_controller_manifests_watch_t *watch) {
    static const char *const FIELDS[] = {"metadata.creationTimestamp", "status.phase",
                                         "status.reason"};
    say(&watch->name, "pods");
    watch->source.tag = DAVIT_CONTROLLER_MANIFESTS_SOURCE_ONE;
    say(&watch->source.val.one.version, "v1");
    say(&watch->source.val.one.plural, "pods");
    watch->fields.len = 3;
    watch->fields.ptr = zeroed(3, sizeof *watch->fields.ptr);
    for (size_t at = 0; at < 3; at++) say(&watch->fields.ptr[at], FIELDS[at]);
    davit_controller_manifests_index_t *index = zeroed(1, sizeof *index);
    watch->indexes.len = 1;
    watch->indexes.ptr = index;
    say(&index->name, "phase");
    say(&index->path, "status.phase");
    index->filter.tag = DAVIT_CONTROLLER_MANIFESTS_INDEX_FILTER_ONLY;
    index->filter.val.only.len = PHASES;
    index->filter.val.only.ptr = zeroed(PHASES, sizeof(text_t));
    for (size_t at = 0; at < PHASES; at++) say(&index->filter.val.only.ptr[at], TERMINATED[at]);
}

bool exports_davit_controller_decide_describe(
    exports_davit_controller_decide_messagepack_t *config,
    exports_davit_controller_decide_manifest_t *ret,
    exports_davit_controller_decide_config_error_t *err) {
    struct json text = {(const char *)config->ptr, config->len};
    struct json other = json_other_name(text, "terminatedPodThreshold");
    /* The host does not apply the schema: a misspelled setting would count as none. */
    if (other.ptr != NULL) {
        copy(&err->field, other);
        say(&err->message, "there is no such setting");
        exports_davit_controller_decide_messagepack_free(config);
        return false;
    }
    bool is_valid = json_number(json_member(text, "terminatedPodThreshold"), 12500, &threshold);
    exports_davit_controller_decide_messagepack_free(config);
    if (!is_valid || threshold < 0) {
        say(&err->field, "terminatedPodThreshold");
        say(&err->message, "it must be a whole number, 0 or more");
        return false;
    }
    memset(ret, 0, sizeof *ret);
    say(&ret->name, "podgc-c");
    say(&ret->version, "0.1.0");
    say(&ret->summary, "Deletes the oldest terminated pods above a threshold.");
    say(&ret->config_schema, SCHEMA);
    ret->watches.len = ret->queues.len = ret->ticks.len = ret->permissions.len = 1;
    ret->watches.ptr = zeroed(1, sizeof *ret->watches.ptr);
    declare_pods(ret->watches.ptr);
    ret->queues.ptr = zeroed(1, sizeof *ret->queues.ptr);
    say(&ret->queues.ptr->name, "passes");
    ret->queues.ptr->workers = ret->queues.ptr->batch = 1;
    ret->queues.ptr->retry_initial = ret->queues.ptr->retry_max = PERIOD_MILLIS;
    ret->ticks.ptr = zeroed(1, sizeof *ret->ticks.ptr);
    say(&ret->ticks.ptr->queue, "passes");
    say(&ret->ticks.ptr->key, "cluster");
    ret->ticks.ptr->period = PERIOD_MILLIS;
    ret->permissions.ptr = zeroed(1, sizeof *ret->permissions.ptr);
    say(&ret->permissions.ptr->verb, "delete");
    say(&ret->permissions.ptr->resource, "pods");
    return true;
}
