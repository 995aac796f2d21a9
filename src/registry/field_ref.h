// SPDX-License-Identifier: Apache-2.0
// The fields of a described value without its type: what grammar, JSON and docs work on, so that
// they are compiled once and not once a scheme.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/core/dtype.h"

namespace posenc::inline v0 {

struct ValueRef;

struct EnumRef {
  void* value;
  std::span<const std::string_view> names;
  std::size_t (*get)(const void*);
  void (*set)(void*, std::size_t);
};
struct EnumListRef {
  void* value;
  std::span<const std::string_view> names;
  std::vector<std::size_t> (*get)(const void*);
  void (*set)(void*, const std::vector<std::size_t>&);
};
struct OptionalRef {
  void* value;
  bool (*has)(const void*);
  void (*reset)(void*);
  ValueRef (*engage)(void*);  // makes a value when there is none
};
// A reference to the value of a field.
struct ValueRef {
  std::variant<double*, Index*, bool*, std::string*, std::vector<double>*, std::vector<Index>*,
               EnumRef, EnumListRef, OptionalRef>
      target;
};

template <class T>
ValueRef value_ref(T& x) {
  if constexpr (NamedEnum<T>) {
    return {
        EnumRef{&x, EnumNames<T>::value,
                [](const void* p) { return static_cast<std::size_t>(*static_cast<const T*>(p)); },
                [](void* p, std::size_t i) { *static_cast<T*>(p) = static_cast<T>(i); }}};
  } else {
    return {&x};
  }
}
template <NamedEnum E>
ValueRef value_ref(std::vector<E>& x) {
  using List = std::vector<E>;
  return {EnumListRef{&x, EnumNames<E>::value,
                      [](const void* p) {
                        std::vector<std::size_t> values;
                        for (const E e : *static_cast<const List*>(p))
                          values.push_back(static_cast<std::size_t>(e));
                        return values;
                      },
                      [](void* p, const std::vector<std::size_t>& values) {
                        auto& list = *static_cast<List*>(p);
                        list.clear();
                        for (const std::size_t i : values) list.push_back(static_cast<E>(i));
                      }}};
}
template <class T>
ValueRef value_ref(std::optional<T>& x) {
  using Optional = std::optional<T>;
  return {OptionalRef{&x,
                      [](const void* p) { return static_cast<const Optional*>(p)->has_value(); },
                      [](void* p) { static_cast<Optional*>(p)->reset(); },
                      [](void* p) {
                        auto& o = *static_cast<Optional*>(p);
                        if (!o) o.emplace();
                        return value_ref(*o);
                      }}};
}

struct FieldRef {
  std::string_view name;
  Field field;
  ValueRef value;
};

// In the order of describe. The references live as long as `x`.
template <Described T>
std::vector<FieldRef> field_refs(T& x) {
  std::vector<FieldRef> refs;
  T::describe(x, [&refs](std::string_view name, auto& value, const Field& field) {
    refs.push_back({name, field, value_ref(value)});
  });
  return refs;
}

}  // namespace posenc::v0
