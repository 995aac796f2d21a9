// SPDX-License-Identifier: Apache-2.0
// The C interface to results over disjoint keys.
#include <vector>

#include "c/support.h"
#include "posenc/attention/attend.h"

using namespace posenc::c;

namespace {

using Tensors = const PosencDLTensor* const*;

posenc::Normalisation rule_of(int stick_breaking) {
  return stick_breaking != 0 ? posenc::Normalisation::stick_breaking
                             : posenc::Normalisation::softmax;
}

struct Layout {
  posenc::HeadsLayout order;
  explicit Layout(const char* name)
      : order(posenc::layout_from_name(std::string_view(&need(name, "layout")))) {}

  posenc::ConstAttentionResult read(const PosencDLTensor* out, const PosencDLTensor* sums,
                                    const char* name) const {
    return {posenc::heads(posenc::const_from_dlpack(need(out, name)), order),
            sums == nullptr ? posenc::ConstTensorView{} : posenc::const_from_dlpack(*sums)};
  }
  posenc::AttentionResult write(const PosencDLTensor* out, const PosencDLTensor* sums) const {
    return {out == nullptr ? posenc::Heads{} : posenc::heads(posenc::from_dlpack(*out), order),
            sums == nullptr ? posenc::TensorView{} : posenc::from_dlpack(*sums)};
  }
  std::vector<posenc::ConstAttentionResult> parts(Tensors outs, Tensors sums, size_t count) const {
    std::vector<posenc::ConstAttentionResult> all;
    for (size_t n = 0; n < count; ++n)
      all.push_back(read((&need(outs, "outs"))[n],
                         &need((&need(sums, "log_sum_exps"))[n], "log_sum_exps"), "outs"));
    return all;
  }
};

}  // namespace

extern "C" {

posenc_status posenc_attention_merge(const char* layout, const PosencDLTensor* const* outs,
                                     const PosencDLTensor* const* log_sum_exps, size_t count,
                                     int stick_breaking, const PosencDLTensor* out,
                                     const PosencDLTensor* log_sum_exp, posenc_error* error) {
  return guarded(error, [&] {
    const Layout l(layout);
    posenc::merge(l.parts(outs, log_sum_exps, count), l.write(&need(out, "out"), log_sum_exp),
                  rule_of(stick_breaking));
  });
}

posenc_status posenc_attention_merge_backward(
    const char* layout, const PosencDLTensor* const* outs,
    const PosencDLTensor* const* log_sum_exps, size_t count, int stick_breaking,
    const PosencDLTensor* out, const PosencDLTensor* log_sum_exp, const PosencDLTensor* d_out,
    const PosencDLTensor* d_log_sum_exp, const PosencDLTensor* const* d_outs,
    const PosencDLTensor* const* d_log_sum_exps, posenc_error* error) {
  return guarded(error, [&] {
    const Layout l(layout);
    std::vector<posenc::AttentionResult> d;
    for (size_t n = 0; n < count; ++n)
      d.push_back(
          l.write((&need(d_outs, "d_outs"))[n], (&need(d_log_sum_exps, "d_log_sum_exps"))[n]));
    posenc::merge_backward(l.parts(outs, log_sum_exps, count),
                           l.read(out, &need(log_sum_exp, "log_sum_exp"), "out"),
                           l.read(d_out, d_log_sum_exp, "d_out"), d, rule_of(stick_breaking));
  });
}

}  // extern "C"
