// SPDX-License-Identifier: Apache-2.0
// A 64-bit hash of values: equal values, equal hashes, on every machine and in every run. Not for
// secrets.
#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/core/dtype.h"

namespace posenc::inline v0 {

class Hasher {
 public:
  // One word, mixed by the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
  Hasher& word(std::uint64_t w) noexcept {
    std::uint64_t z = state_ + 0x9e3779b97f4a7c15u + w;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    state_ = (z ^ (z >> 31)) * 0x9fb21c651e98df25u;
    return *this;
  }

  template <class T>
  Hasher& add(const T& x) noexcept {
    if constexpr (std::is_same_v<T, double>) {
      word(std::bit_cast<std::uint64_t>(x == 0 ? 0.0 : x));  // -0 == 0
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      word(static_cast<std::uint64_t>(x));
    } else if constexpr (Described<T>) {
      add(std::string_view(T::card.name));
      T::describe(x, [this](std::string_view, const auto& v, const Field&) { this->add(v); });
    } else {
      sequence(x);
    }
    return *this;
  }
  template <class T>
  Hasher& add(const std::optional<T>& x) noexcept {
    word(x.has_value());
    if (x) add(*x);
    return *this;
  }

  std::uint64_t value() const noexcept { return state_; }

 private:
  template <class T>
  void sequence(const T& x) noexcept {  // vectors and text: length, then elements
    word(x.size());
    for (const auto& e : x) add(e);
  }

  std::uint64_t state_ = 0;
};

template <Described T>
std::uint64_t hash_of(const T& x) noexcept {
  return Hasher().add(x).value();
}

}  // namespace posenc::v0
