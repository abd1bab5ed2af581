#pragma once

#include <string>

#include "axonn/data/grammar/expression.h"

namespace axonn {

/// JSON that fits a schema, which is the text of one, of these keywords: type, enum, const, anyOf,
/// oneOf (as anyOf), allOf of one, $ref into the schema, properties, required,
/// additionalProperties, items, prefixItems, minItems, maxItems, minLength, maxLength, pattern,
/// format (date, time, date-time, uuid, email, ipv4), minimum, maximum, exclusiveMinimum and
/// exclusiveMaximum (of numbers with fractions: whole ones). Annotations are passed over. Members
/// come in the order of `properties`. What the schema leaves open may be narrower than it allows:
/// an object has no other members than its properties unless it has none. Throws UsageError that
/// names any other keyword, with its location.
ExpressionPtr json_schema(const std::string& schema, Rules& rules);

}  // namespace axonn
