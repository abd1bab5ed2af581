#pragma once

#include <string_view>

#include "axonn/data/text/jinja/jinja_value.h"

namespace axonn::jinja {

/// One of + - * / // % **, as Python has them. Throws for an integer beyond 64 bits.
Value arithmetic(std::string_view op, const Value& left, const Value& right);
Value negated(const Value& value);

/// value['name'] and value[0] as the sandbox of Jinja evaluates them: undefined if there is none.
Value item_of(const Value& value, const Value& key);
/// value[begin:end:step]; bounds that are None are left out.
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step);

}  // namespace axonn::jinja
