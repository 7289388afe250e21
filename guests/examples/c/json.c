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

/* The members of an object, one after the other. */
struct members {
    const char *at, *end;
    struct json name, value;
};

static struct members members_of(struct json object) {
    if (object.len < 2 || object.ptr[0] != '{') return (struct members){0};
    return (struct members){.at = object.ptr + 1, .end = object.ptr + object.len - 1};
}

static bool next_member(struct members *members) {
    if (members->at >= members->end) return false;
    const char *name_end = end_of_string(members->at, members->end);
    if (name_end >= members->end) return false;
    const char *value = name_end + 1, *value_end = end_of_value(value, members->end);
    members->name = json_string(between(members->at, name_end));
    members->value = between(value, value_end);
    members->at = value_end + 1;
    return true;
}

struct json json_member(struct json object, const char *name) {
    struct members members = members_of(object);
    while (next_member(&members)) {
        if (json_equals(members.name, name)) return members.value;
    }
    return NONE;
}

struct json json_other_name(struct json object, const char *name) {
    struct members members = members_of(object);
    while (next_member(&members)) {
        if (!json_equals(members.name, name)) return members.name;
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
