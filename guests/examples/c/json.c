#include "json.h"

#include <string.h>

static const struct json NONE = {NULL, 0};

static struct json between(const char *start, const char *end) {
    return (struct json){start, (size_t)(end - start)};
}

/* The end of the string that starts here, after its quote. */
static const char *end_of_string(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++) {
        if (*at == '\\') at++;
    }
    return at < end ? at + 1 : end;
}

/* The end of the value that starts here. */
static const char *end_of_value(const char *at, const char *end) {
    size_t depth = 0;
    while (at < end) {
        switch (*at) {
        case '"':
            at = end_of_string(at, end);
            break;
        case '{':
        case '[':
            depth++;
            at++;
            break;
        case '}':
        case ']':
            if (depth == 0) return at;
            depth--;
            at++;
            break;
        case ',':
            if (depth == 0) return at;
            at++;
            break;
        default:
            at++;
        }
        if (depth == 0 && at < end && (*at == ',' || *at == '}' || *at == ']')) return at;
    }
    return end;
}

struct json json_member(struct json object, const char *name) {
    if (object.len < 2 || object.ptr[0] != '{') return NONE;
    const char *at = object.ptr + 1, *end = object.ptr + object.len - 1;
    while (at < end) {
        const char *key_end = end_of_string(at, end);
        if (key_end >= end) return NONE;
        const char *value = key_end + 1;
        const char *value_end = end_of_value(value, end);
        if (json_equals(json_string(between(at, key_end)), name)) return between(value, value_end);
        at = value_end + 1;
    }
    return NONE;
}

struct json json_other_name(struct json object, const char *name) {
    if (object.len < 2 || object.ptr[0] != '{') return NONE;
    const char *at = object.ptr + 1, *end = object.ptr + object.len - 1;
    while (at < end) {
        const char *key_end = end_of_string(at, end);
        if (key_end >= end) return NONE;
        struct json key = json_string(between(at, key_end));
        if (!json_equals(key, name)) return key;
        at = end_of_value(key_end + 1, end) + 1;
    }
    return NONE;
}

struct json json_string(struct json value) {
    if (value.len < 2 || value.ptr[0] != '"') return NONE;
    return between(value.ptr + 1, value.ptr + value.len - 1);
}

bool json_number(struct json value, long long otherwise, long long *number) {
    *number = otherwise;
    if (value.ptr == NULL) return true;
    bool is_negative = value.len > 1 && value.ptr[0] == '-';
    size_t at = is_negative ? 1 : 0;
    if (at == value.len || value.len > 18) return false;
    for (*number = 0; at < value.len; at++) {
        if (value.ptr[at] < '0' || value.ptr[at] > '9') return false;
        *number = *number * 10 + (value.ptr[at] - '0');
    }
    if (is_negative) *number = -*number;
    return true;
}

bool json_equals(struct json text, const char *other) {
    size_t len = strlen(other);
    return text.ptr != NULL && text.len == len && memcmp(text.ptr, other, len) == 0;
}
