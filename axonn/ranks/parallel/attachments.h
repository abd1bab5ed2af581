#pragma once

#include <memory>
#include <typeindex>
#include <typeinfo>
#include <utility>

namespace axonn {

/// Objects that layers find by their type, such as a KeyValueCache: at most one of a type counts,
/// the one attached last. Copies share the objects and keep them alive; what is attached to a copy
/// is not in the original.
class Attachments {
 public:
  template <typename T>
  void attach(std::shared_ptr<T> object) {
    last_ = std::make_shared<const Attachment>(
        Attachment{typeid(T), std::move(object), std::move(last_)});
  }
  /// Null if there is none.
  template <typename T>
  T* find() const {
    for (const Attachment* one = last_.get(); one; one = one->before.get())
      if (one->type == typeid(T)) return static_cast<T*>(one->object.get());
    return nullptr;
  }

 private:
  struct Attachment {
    std::type_index type;
    std::shared_ptr<void> object;
    std::shared_ptr<const Attachment> before;
  };
  std::shared_ptr<const Attachment> last_;
};

}  // namespace axonn
