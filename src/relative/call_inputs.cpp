// SPDX-License-Identifier: Apache-2.0
#include "relative/call_inputs.h"

#include <string>

#include "posenc/core/error.h"
#include "relative/find_name.h"

namespace posenc::inline v0::detail {
namespace {

// "must be q, query_bbox and key_bbox"
std::string must_be(std::span<const Input> all) {
  std::string text = "must be ";
  for (std::size_t n = 0; n < all.size(); ++n)
    text += (n == 0 ? "" : n + 1 == all.size() ? " and " : ", ") + all[n].name;
  return all.empty() ? "must be empty" : text;
}

}  // namespace

CallInputs::CallInputs(std::string_view who, std::vector<Input> declared,
                       std::span<const ConstTensorView> given)
    : who_(who), declared_(std::move(declared)), given_(given) {
  if (given.size() != declared_.size())
    refuse_field(who, "inputs", must_be(declared_), static_cast<Index>(given.size()));
}

const ConstTensorView& CallInputs::operator[](std::string_view name) const {
  return given_[index_of(who_, declared_, name)];
}

bool CallInputs::has(std::string_view name) const noexcept {
  return std::ranges::find(declared_, name, &Input::name) != declared_.end();
}

std::vector<Index> CallInputs::shape(std::string_view name) const {
  const ConstTensorView& v = (*this)[name];
  return {v.shape.begin(), v.shape.begin() + v.rank};
}

InputGradients::InputGradients(const CallInputs& of) : who_(of.who_), sums_(of.declared_.size()) {
  for (const Input& one : of.declared_) arrays_.push_back({one.name, of.shape(one.name), {}, {}});
}

std::vector<double>& InputGradients::operator[](std::string_view name) {
  return sums_[index_of(who_, arrays_, name)];
}

}  // namespace posenc::v0::detail
