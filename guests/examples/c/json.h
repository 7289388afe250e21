/* Reads JSON in place. The host writes the text, without space between its parts. */

#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>

/* Text that belongs to somebody else. A null pointer is no value. */
struct json {
    const char *ptr;
    size_t len;
};

/* The value of a member of an object; no value if the object has no such member. */
struct json json_member(struct json object, const char *name);

/* The name of the first member of an object that has another name; no value if there is none. */
struct json json_other_name(struct json object, const char *name);

/* The contents of a string, with its escapes as they are; no value for any other value. */
struct json json_string(struct json value);

/* The value as a whole number; the default for no value. False for any other value. */
bool json_number(struct json value, long long otherwise, long long *number);

/* Whether the text is this one. */
bool json_equals(struct json text, const char *other);

#endif
