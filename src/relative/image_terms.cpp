// SPDX-License-Identifier: Apache-2.0
#include "relative/image_terms.h"

#include <cstdlib>

#include "posenc/core/error.h"
#include "relative/call_inputs.h"
#include "relative/lowering.h"

namespace posenc::inline v0::detail {

void WindowRows::check(std::string_view who) const {
  if (height < 1 || height > 4096)
    refuse_field(who, "height", "must lie between 1 and 4096", height);
  if (width < 1 || width > 4096) refuse_field(who, "width", "must lie between 1 and 4096", width);
}

void WindowRows::add_lines(std::string_view who, PickedRows& t, TermStore& store) const {
  const auto place = [this](Index d, Index size) {
    return absolute ? std::abs(d) : (reversed ? -d : d) + size - 1;
  };
  const Index step = absolute ? width : 2 * width - 1;
  t.lines[0] = line_over(
      who, store, {1 - height, height - 1}, [&](Index d) { return step * place(d, height); }, 0);
  t.lines[1] = line_over(
      who, store, {1 - width, width - 1}, [&](Index d) { return place(d, width); }, 1);
}

std::vector<double> window_by_head(std::vector<double> v, bool heads_first, Index heads,
                                   Index rows) {
  return heads_first ? v : transposed_list(v, rows, heads);
}
std::vector<double> window_from_heads(std::vector<double> v, bool heads_first, Index heads,
                                      Index rows) {
  return heads_first ? v : transposed_list(v, heads, rows);
}

std::vector<Input> class_inputs() {
  return {{"query_class", {kBatch, kQueries}, true}, {"key_class", {kBatch, kKeys}, true}};
}

void bind_classes(std::string_view who, const CallData& call, std::span<Term> terms) {
  const CallInputs given(who, class_inputs(), call.inputs);
  bind_pairs(terms, given["query_class"], given["key_class"]);
}

IndexPair patches_alone(TermStore& store) {
  return store.pair({0, -1, -1, -1}, 2, 2);
}

}  // namespace posenc::v0::detail
