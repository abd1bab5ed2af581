#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "axonn/data/text/jinja/jinja_value.h"

namespace axonn::jinja {

using Variable = std::pair<int, Value>;

/// The variables of a block. Those of the blocks around it are looked up in `outer`.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<Variable> variables = {};

  const Value* find(int symbol) const {
    for (const Scope* scope = this; scope; scope = scope->outer.get())
      for (const auto& [name, value] : scope->variables)
        if (name == symbol) return &value;
    return nullptr;
  }
  void set(int symbol, Value value) {
    for (auto& [name, old] : variables)
      if (name == symbol) {
        old = std::move(value);
        return;
      }
    variables.emplace_back(symbol, std::move(value));
  }
};
using ScopePtr = std::shared_ptr<Scope>;

}  // namespace axonn::jinja
